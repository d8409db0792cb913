"""Settings of topics. A change that has no effect is refused, so that no operator relies on it."""

from __future__ import annotations

import pytest

from escrowmq.wire.rocketmq.remoting.codes import Code, ResultCode
from escrowmq.wire.rocketmq.remoting.frames import Command
from tests.unit.wire.rocketmq.remoting.clients import Client, create, found, server


def update(client: Client, **fields: str) -> Command:
    """Ask for settings of topic `t`, as mqadmin does: 8 queues that can be read and written if nothing else is said."""
    defaults = {"topic": "t", "readQueueNums": "8", "writeQueueNums": "8", "perm": "6", "attributes": ""}
    return client.call(Code.UPDATE_TOPIC, {**defaults, **fields})


@pytest.mark.parametrize("perm", ["0", "2", "4", "7"])
def test_other_permissions_than_reading_and_writing_are_refused(perm: str) -> None:
    client = Client(server())
    update(client)
    refused = update(client, perm=perm)
    assert refused.code == ResultCode.NOT_SUPPORTED
    assert str(refused.remark).startswith("permissions of a topic are not supported: topic t can be read and written")


def test_a_topic_that_is_to_shrink_keeps_its_queues_and_says_so() -> None:
    client = Client(server())
    update(client)
    refused = update(client, readQueueNums="4", writeQueueNums="4")
    assert (refused.code, refused.remark) == (
        ResultCode.INVALID_PARAMETER,
        "topic t has 8 queues and cannot shrink to 4: ask for 8 or more, or delete it first",
    )
    assert found(client, Code.TOPIC_CONFIG, topic="t")["readQueueNums"] == 8


def test_different_numbers_of_queues_to_read_and_to_write_are_refused() -> None:
    client = Client(server())
    assert update(client, writeQueueNums="4").code == ResultCode.INVALID_PARAMETER
    assert client.call(Code.TOPIC_CONFIG, {"topic": "t"}).code == ResultCode.TOPIC_NOT_EXIST


def test_settings_that_a_topic_has_already_are_accepted() -> None:
    client = Client(server())
    for _ in range(2):
        assert update(client, attributes="+message.type=FIFO").code == ResultCode.SUCCESS
    assert client.call(Code.UPDATE_TOPIC, {"topic": "t"}).code == ResultCode.SUCCESS
    config = found(client, Code.TOPIC_CONFIG, topic="t")
    assert (config["writeQueueNums"], config["attributes"]) == (8, {"message.type": "FIFO"})


def test_an_unknown_type_is_refused_with_the_types_that_exist() -> None:
    refused = update(Client(server()), attributes="+message.type=TRANSACTIONAL")
    assert refused.code == ResultCode.INVALID_PARAMETER
    assert str(refused.remark).startswith(
        "message.type=TRANSACTIONAL is not a type of topics: choose one of NORMAL, FIFO, "
    )


@pytest.mark.parametrize("attributes", ["+cleanup.policy=COMPACTION", "-message.type", "+message.type=FIFO,+x=1"])
def test_other_attributes_are_refused(attributes: str) -> None:
    assert update(Client(server()), attributes=attributes).code == ResultCode.NOT_SUPPORTED


def test_the_type_of_a_topic_cannot_be_changed() -> None:
    client = Client(server())
    create(client, attributes="+message.type=FIFO")
    assert create(client, attributes="+message.type=NORMAL") == ResultCode.MESSAGE_ILLEGAL
