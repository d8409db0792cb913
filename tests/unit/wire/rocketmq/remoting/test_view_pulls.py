"""Pulls from views."""

from __future__ import annotations

import pytest

from escrowmq.wire.rocketmq.names import HALF_TOPIC
from escrowmq.wire.rocketmq.remoting.codes import Code, ResultCode
from tests.unit.wire.rocketmq.remoting.clients import Client, messages, pull_fields, server
from tests.unit.wire.rocketmq.remoting.test_producing import COMMIT, end, half


def waiting(offset: int) -> dict[str, str]:
    return pull_fields(HALF_TOPIC, 0, offset, sysFlag="6", suspendTimeoutMillis="1000")


def test_a_pull_beyond_the_end_is_moved_into_the_view() -> None:
    client = Client(server())
    half(client)
    for offset, moved in ((9, "2"), (0, "1")):
        pulled = client.pull(HALF_TOPIC, 0, offset)
        assert (pulled.code, pulled.fields["nextBeginOffset"]) == (ResultCode.PULL_OFFSET_MOVED, moved)


def test_a_pull_goes_on_behind_decided_messages() -> None:
    client = Client(server())
    end(client, half(client), COMMIT)
    pulled = client.pull(HALF_TOPIC, 0, 1)
    assert (pulled.code, pulled.fields["nextBeginOffset"]) == (ResultCode.PULL_RETRY_IMMEDIATELY, "2")


@pytest.mark.parametrize("arrives", [True, False])
def test_a_pull_without_a_message_is_answered_when_its_time_is_over(arrives: bool) -> None:
    client = Client(server())
    half(client, "a")
    number = client.send(Code.PULL, waiting(2))
    if arrives:
        half(client, "b")
    assert client.response(number) is None
    client.server.now += 1000
    client.server.end_turn()
    found = client.response(number)
    assert found is not None
    assert found.code == (ResultCode.SUCCESS if arrives else ResultCode.PULL_NOT_FOUND)
    assert len(messages(found.body)) == arrives


def test_a_lost_client_waits_no_longer() -> None:
    client = Client(server())
    half(client)
    client.send(Code.PULL, waiting(2))
    client.lose()
    client.server.now += 1000
    client.server.end_turn()
