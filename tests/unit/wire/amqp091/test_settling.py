"""The settlement of deliveries: ack, nack, reject and recover."""

from __future__ import annotations

import pytest

from escrowmq.core.queues import portions
from escrowmq.core.queues.dead_letters import DeadLetters
from escrowmq.core.queues.queue import Queue
from escrowmq.core.queues.unsettled import Unsettled
from escrowmq.wire.amqp091 import codes, spec
from escrowmq.wire.amqp091.frames import method_frame
from escrowmq.wire.amqp091.method import Method
from tests.harness.client import SimClient
from tests.harness.server import Options
from tests.unit.wire.amqp091.clients import Server, bodies, consuming, fails_channel, pair, queue


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


def got_in_turn(count: int) -> tuple[Server, SimClient, list[Queue]]:
    """Return a client that has got `count` messages of each of two queues, one by one and in turn. Four deliveries may
    return in one turn.
    """
    made = Server(Options(return_piece=4))
    client = SimClient(made)
    client.open_channel(1)
    for name in ("a", "b"):
        queue(client, name)
        client.publish(1, name, *[b"%d" % i for i in range(count)])
    client.send(1, *[spec.BasicGet("a"), spec.BasicGet("b")] * count)
    client.inbox.clear()
    made.broker.engine.requests.turn = made.broker.engine.requests.left = 1
    vhost = made.broker.directory.vhost("/")
    return made, client, [vhost.queue("a"), vhost.queue("b")]


class TestPieces:
    @pytest.mark.rule("FAIR-1", "ORD-2")
    @pytest.mark.parametrize(
        "method",
        [spec.BasicNack(0, True, True), spec.BasicNack(39, True, True), spec.BasicRecover(True), spec.BasicRecover()],
    )
    def test_deliveries_return_a_few_in_each_turn_and_nothing_overtakes_them(self, method: Method) -> None:
        made, client, queues = got_in_turn(20)
        client.publish(1, "a", b"later", disk=False)
        other = SimClient(made, "other")
        other.open_channel(1)
        made.broker.engine.requests.renew()
        made.receive(client.port, method_frame(1, method))
        made.receive(other.port, method_frame(1, spec.BasicConsume("a", "t", no_ack=True)))
        left, turns = 40, 0
        while queues[0].returning:
            made.end_one_turn()
            now = sum(queue.unsettled for queue in queues)
            assert 0 <= left - now <= 8, "the two pieces of the first turns were not small"
            left, turns = now, turns + 1
            assert queues[0].returning == queues[1].returning
        assert turns >= 8
        made.end_turn()
        made.run_disk()
        other.collect()
        assert other.bodies() == [*[b"%d" % i for i in range(20)], b"later"]

    @pytest.mark.rule("FAIR-1")
    @pytest.mark.parametrize("closes", [False, True])
    def test_deliveries_of_a_channel_that_ends_are_not_listed_first(
        self, monkeypatch: pytest.MonkeyPatch, *, closes: bool
    ) -> None:
        made, client, queues = got_in_turn(20)
        monkeypatch.delattr(Unsettled, "clear")
        if closes:
            client.port.endpoint.receive(method_frame(1, spec.ChannelClose(200, "", 0, 0)))
        else:
            made.lose(client.port)
        assert [queue.unsettled for queue in queues] == [20, 20]
        monkeypatch.undo()
        made.end_turn()
        assert [queue.unsettled for queue in queues] == [18, 18]

    @pytest.mark.rule("FAIR-1", "DUR-1")
    def test_a_crash_between_two_pieces_loses_nothing(self) -> None:
        for turns in range(9):
            made, client, _ = got_in_turn(20)
            made.receive(client.port, method_frame(1, spec.BasicNack(0, True, True)))
            for _ in range(turns):
                made.end_one_turn()
            made.run_disk()
            while made.begin_snapshot() and made.snapshot is None:
                made.end_one_turn()
            made.storage.crash()
            again = Server(storage=made.storage)
            assert [bodies(again, name) for name in "ab"] == [[b"%d" % i for i in range(20)]] * 2

    def test_a_client_that_goes_meanwhile_leaves_no_queue_paused(self) -> None:
        made, client, queues = got_in_turn(20)
        made.receive(client.port, method_frame(1, spec.BasicNack(0, True, True)))
        made.end_one_turn()
        made.lose(client.port)
        while made.broker.engine.turn.unfinished:
            made.end_turn()
        assert [(queue.unsettled, queue.returning) for queue in queues] == [(0, 0), (0, 0)]
        assert bodies(made, "b") == [b"%d" % i for i in range(20)]


class TestRecover:
    @pytest.mark.rule("FAIR-1")
    def test_deliveries_are_sent_again_a_few_in_each_turn(self) -> None:
        made, client = consuming(0, *[b"%d" % i for i in range(20)])
        assert len(client.bodies()) == 20
        made.broker.engine.returns.piece = 4
        made.broker.engine.requests.turn = made.broker.engine.requests.left = 1
        made.receive(client.port, method_frame(2, spec.BasicRecover()))
        numbers = []
        for _ in range(6):
            made.end_one_turn()
            numbers.append(len(client.deliveries()))
        assert max(numbers) <= 8
        assert sum(numbers) == 20
        client.expect(2, spec.BasicRecoverOk)

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


@pytest.mark.rule("FAIR-1")
def test_few_deliveries_are_rejected_together_while_dead_letters_go_to_many_queues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, client = pair()
    client.declare(1, "q")
    client.publish(1, "q", *[b"x"] * 23)
    client.call(1, spec.BasicConsume("q", "tag"), spec.BasicConsumeOk)
    client.deliveries()
    monkeypatch.setattr(portions, "TOGETHER", 80)
    monkeypatch.setattr(DeadLetters, "width", lambda *_: (16, True))
    rejected: list[int] = []
    monkeypatch.setattr(DeadLetters, "send", lambda *call: rejected.append(len(call[2])))
    client.send(1, spec.BasicNack(0, multiple=True, requeue=False))
    while made.broker.engine.turn.unfinished:
        made.end_turn()
    assert sum(rejected) == 23
    assert max(rejected) == 5
