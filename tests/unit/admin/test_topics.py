"""The operators' view of topics."""

from __future__ import annotations

import pytest

from escrowmq.admin.operation import OperationRefused
from escrowmq.admin.pieces import Pieces
from escrowmq.admin.topics import TopicAdmin
from escrowmq.core.conditions import BrokerError
from escrowmq.core.messages.envelope import Envelope
from tests.unit.admin.processes import FakeProcess, perform
from tests.unit.wire.amqp091.clients import pair


def test_topics_are_created_listed_shown_and_deleted() -> None:
    server, _ = pair()
    broker = server.broker
    operations = TopicAdmin(FakeProcess(server), Pieces()).operations
    made = perform(
        operations, "topic.create", vhost="/", name="t", partitions=2, message_type="fifo", max_age="7D", max_bytes=1000
    )
    assert made == {"vhost": "/", "name": "t", "type": "fifo", "partitions": 2, "messages": 0, "bytes": 0}
    topic = broker.topics.find(broker.directory.vhost("/"), "t")
    assert topic is not None
    assert topic.streams[0].options.max_length_bytes == 1000
    broker.engine.publish(Envelope("t", "k"), [b"ab", b"c"], (topic.streams[1],))
    assert perform(operations, "topic.list") == [made | {"messages": 2, "bytes": 3}]
    assert perform(operations, "topic.list", vhost="/") == perform(operations, "topic.list")
    assert perform(operations, "topic.show", vhost="/", name="t") == [
        {
            "partition": partition,
            "queue": f"t-{partition}",
            "first_offset": 0,
            "next_offset": count,
            "messages": count,
            "bytes": size,
            "unavailable": "",
        }
        for partition, count, size in ((0, 0, 0), (1, 2, 3))
    ]
    topic.streams[0].recovered()
    assert perform(operations, "topic.list")[0]["bytes"] == 3
    topic.streams[0].fault = "unreadable"
    assert perform(operations, "topic.list")[0]["bytes"] is None
    assert [row["bytes"] for row in perform(operations, "topic.show", vhost="/", name="t")] == [None, 3]
    perform(operations, "topic.delete", vhost="/", name="t")
    assert perform(operations, "topic.list") == []


def test_an_unknown_topic_or_virtual_host_is_refused() -> None:
    server, _ = pair()
    operations = TopicAdmin(FakeProcess(server), Pieces()).operations
    for operation in ("topic.show", "topic.delete"):
        with pytest.raises(OperationRefused, match="no topic 't' in vhost '/'; `escrowmq topic list`"):
            perform(operations, operation, vhost="/", name="t")
    with pytest.raises(BrokerError, match="no such vhost"):
        perform(operations, "topic.list", vhost="nowhere")
