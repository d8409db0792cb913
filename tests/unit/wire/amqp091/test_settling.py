"""The settlement of deliveries: ack, nack, reject and recover."""

from __future__ import annotations

import pytest

from escrowmq.wire.amqp091 import codes, spec
from tests.harness.client import SimClient
from tests.unit.wire.amqp091.clients import bodies, consuming, fails_channel, queue


def tags(client: SimClient) -> list[int]:
    return [delivery.method.delivery_tag for delivery in client.deliveries()]  # type: ignore[attr-defined]


class TestSettling:
    @pytest.mark.parametrize(
        ("method", "left"),
        [
            (spec.BasicAck(2), [1, 3]),
            (spec.BasicAck(2, True), [3]),
            (spec.BasicAck(0, True), []),
            (spec.BasicNack(2, False, False), [1, 3]),
            (spec.BasicNack(2, True, False), [3]),
            (spec.BasicNack(0, True, False), []),
            (spec.BasicReject(3, False), [1, 2]),
        ],
    )
    def test_each_settlement_removes_or_requeues_its_messages(self, method: spec.BasicAck, left: list[int]) -> None:
        made, client = consuming(0, b"1", b"2", b"3")
        assert tags(client) == [1, 2, 3]
        client.send(2, method)
        assert made.broker.directory.vhost("/").queue("q").unsettled == len(left)
        client.call(2, spec.ChannelClose(200, "", 0, 0), spec.ChannelCloseOk)
        assert bodies(made) == [b"%d" % i for i in left]

    @pytest.mark.parametrize(
        "method",
        [
            spec.BasicAck(0),
            spec.BasicAck(4),
            spec.BasicAck(4, True),
            spec.BasicAck(1),
            spec.BasicAck(1, True),
            spec.BasicNack(9, False, True),
            spec.BasicReject(1, True),
            spec.BasicAck(2**64 - 1, True),
        ],
    )
    def test_an_unknown_delivery_tag_closes_the_channel(self, method: spec.BasicAck) -> None:
        _, client = consuming(0, b"1", b"2", b"3")
        client.send(2, spec.BasicAck(1))
        client.deliveries()
        client.send(2, method)
        closed = fails_channel(client, 2, codes.PRECONDITION_FAILED, f"unknown delivery tag {method.delivery_tag}")
        assert (closed.class_id, closed.method_id) == (60, method.METHOD_ID)

    def test_settling_everything_without_deliveries_is_allowed(self) -> None:
        _, client = consuming()
        client.send(2, spec.BasicAck(0, True), spec.BasicNack(0, True, True))
        assert not client.inbox

    def test_settlements_before_an_unknown_tag_stay(self) -> None:
        made, client = consuming(0, b"1", b"2", b"3")
        client.deliveries()
        client.send(2, spec.BasicAck(1), spec.BasicAck(2), spec.BasicAck(2), spec.BasicAck(3))
        fails_channel(client, 2, codes.PRECONDITION_FAILED)
        assert bodies(made) == [b"3"]

    @pytest.mark.rule("ORD-2")
    def test_a_requeued_message_is_redelivered_immediately_in_order(self) -> None:
        _, client = consuming(2, b"1", b"2", b"3")
        assert client.bodies() == [b"1", b"2"]
        client.send(2, spec.BasicNack(0, True, True))
        again = client.deliveries()
        assert [(d.body, d.method.redelivered) for d in again] == [(b"1", True), (b"2", True)]  # type: ignore[attr-defined]
        assert [d.method.delivery_tag for d in again] == [3, 4]  # type: ignore[attr-defined]

    def test_a_channel_can_have_consumers_with_and_without_acknowledgement(self) -> None:
        made, client = consuming()
        queue(client, "free")
        client.call(2, spec.BasicConsume("free", "f", no_ack=True), spec.BasicConsumeOk)
        for name in ("free", "q", "free", "q", "q", "free"):
            client.publish(1, name, b"x")
        assert tags(client) == [1, 2, 3, 4, 5, 6]
        client.send(2, spec.BasicAck(4, True))
        client.send(2, spec.BasicAck(5))
        assert not client.inbox
        assert made.broker.directory.vhost("/").queue("q").unsettled == 0
        client.send(2, spec.BasicAck(6))
        fails_channel(client, 2, codes.PRECONDITION_FAILED, "unknown delivery tag 6")

    def test_deliveries_can_be_settled_after_cancelling(self) -> None:
        made, client = consuming(0, b"1", b"2")
        client.deliveries()
        client.call(2, spec.BasicCancel("t"), spec.BasicCancelOk)
        client.send(2, spec.BasicAck(1), spec.BasicNack(2, False, True))
        assert bodies(made) == [b"2"]
        client.call(2, spec.BasicConsume("q", "t"), spec.BasicConsumeOk)
        assert tags(client) == [3]

    @pytest.mark.parametrize(
        "method", [spec.BasicAck(0, True), spec.BasicNack(0, True, True), spec.BasicNack(0, True, False)]
    )
    @pytest.mark.parametrize("tx", [False, True])
    def test_deliveries_can_be_settled_after_the_queue_was_deleted(self, method: spec.BasicAck, tx: bool) -> None:
        made, client = consuming(0, b"1", b"2")
        client.deliveries()
        if tx:
            client.call(2, spec.TxSelect(), spec.TxSelectOk)
        client.send(1, spec.QueueDelete("q"))
        client.expect(2, spec.BasicCancel)
        client.expect(1, spec.QueueDeleteOk)
        client.send(2, method)
        if tx:
            client.send(2, spec.TxCommit())
        client.inbox.clear()
        client.open_channel(3)
        queue(client)
        assert bodies(made) == []
        made.tidy()
        assert sum(segment.live for segment in made.journal._table) == 0


class TestRecover:
    def test_recover_requeues(self) -> None:
        _, client = consuming(2, b"1", b"2", b"3")
        client.deliveries()
        client.open_channel(3)
        client.call(3, spec.BasicConsume("q", "other", no_ack=True), spec.BasicConsumeOk)
        assert client.bodies() == [b"3"]
        client.call(2, spec.BasicCancel("t"), spec.BasicCancelOk)
        client.call(2, spec.BasicRecover(True), spec.BasicRecoverOk)
        assert client.bodies() == [b"1", b"2"]

    def test_recover_redelivers_to_the_same_consumer(self) -> None:
        _, client = consuming(2, b"1", b"2", b"3")
        client.deliveries()
        client.open_channel(3)
        client.call(3, spec.BasicConsume("q", "other", no_ack=True), spec.BasicConsumeOk)
        client.deliveries()
        client.send(2, spec.BasicRecover(False))
        again = client.deliveries()
        client.expect(2, spec.BasicRecoverOk)
        assert [(d.channel, d.body, d.method.redelivered) for d in again] == [  # type: ignore[attr-defined]
            (2, b"1", True),
            (2, b"2", True),
        ]
        client.send(2, spec.BasicAck(1))
        fails_channel(client, 2, codes.PRECONDITION_FAILED, "unknown delivery tag 1")

    def test_recover_async_has_no_answer(self) -> None:
        _, client = consuming(2, b"1")
        client.deliveries()
        client.send(2, spec.BasicRecoverAsync(True))
        assert client.bodies() == [b"1"]
        assert not client.inbox
