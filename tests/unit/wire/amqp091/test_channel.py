"""Channels: deliveries, settlements, confirms, and their fate when the channel ends."""

from __future__ import annotations

import pytest

from escrowmq.core.access.holdings import STEP
from escrowmq.core.messages.entry import Entry
from escrowmq.core.queues.consumer import Consumer
from escrowmq.core.queues.discipline import ENTRY_COST
from escrowmq.wire.amqp091 import codes, spec
from escrowmq.wire.amqp091.frames import method_frame
from escrowmq.wire.amqp091.method import Method
from escrowmq.wire.amqp091.properties import Properties
from tests.harness.client import SimClient
from tests.harness.holding import each_held
from tests.unit.wire.amqp091.clients import PERSISTENT, Server, bodies, consuming, fails_channel, message, pair, queue

HEADERS = [Properties(delivery_mode=2, priority=priority).encode() for priority in (0, 1)]


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


class TestPrefetch:
    def test_prefetch_applies_to_each_consumer(self) -> None:
        _, client = consuming(2, *[b"%d" % i for i in range(10)])
        client.send(2, spec.BasicConsume("q", "u"))
        assert len(client.deliveries()) == 4
        client.send(2, spec.BasicAck(1))
        assert len(client.deliveries()) == 1

    def test_a_changed_prefetch_applies_to_later_consumers_only(self) -> None:
        _, client = consuming(2, *[b"%d" % i for i in range(10)])
        assert len(client.deliveries()) == 2
        client.send(2, spec.BasicQos(0, 5))
        client.expect(2, spec.BasicQosOk)
        assert not client.deliveries()
        client.send(2, spec.BasicConsume("q", "u"))
        client.expect(2, spec.BasicConsumeOk)
        assert len(client.deliveries()) == 5

    def test_global_prefetch_applies_to_the_channel(self) -> None:
        _, client = pair()
        queue(client, "a")
        queue(client, "b")
        client.open_channel(2)
        client.call(2, spec.BasicQos(0, 3, True), spec.BasicQosOk)
        for name in ("a", "b"):
            client.publish(1, name, *[name.encode()] * 5)
            client.send(2, spec.BasicConsume(name, name))
        assert len(client.deliveries()) == 3
        client.send(2, spec.BasicAck(2, True))
        assert len(client.deliveries()) == 2
        client.inbox.clear()
        client.send(2, spec.BasicQos(0, 4, True))
        assert len(client.deliveries()) == 1
        client.send(2, spec.BasicQos(0, 1, True), spec.BasicAck(3))
        assert len(client.deliveries()) == 0
        client.send(2, spec.BasicQos(0, 0, True))
        assert len(client.deliveries()) == 4

    def test_prefetch_is_ignored_without_acknowledgement(self) -> None:
        _, client = pair()
        queue(client)
        client.call(1, spec.BasicQos(0, 1, True), spec.BasicQosOk)
        client.publish(1, "q", *[b"x"] * 5)
        client.send(1, spec.BasicConsume("q", "t", no_ack=True))
        assert len(client.deliveries()) == 5

    def test_closing_the_channel_removes_its_window(self) -> None:
        _, client = consuming(0, b"1", b"2")
        client.deliveries()
        client.call(2, spec.ChannelClose(200, "", 0, 0), spec.ChannelCloseOk)
        client.open_channel(2)
        client.send(2, spec.BasicQos(0, 1, True), spec.BasicConsume("q", "t"))
        assert len(client.deliveries()) == 1

    def test_channel_flow_stops_deliveries(self) -> None:
        _, client = consuming()
        assert not client.call(2, spec.ChannelFlow(False), spec.ChannelFlowOk).active
        client.publish(1, "q", b"x")
        assert not client.deliveries()
        client.send(2, spec.ChannelFlow(True))
        assert len(client.deliveries()) == 1


class TestConfirms:
    @pytest.mark.rule("DUR-1")
    def test_confirms_wait_for_the_disk_and_are_combined(self) -> None:
        made, client = pair()
        queue(client)
        client.call(1, spec.ConfirmSelect(), spec.ConfirmSelectOk)
        client.publish(1, "q", b"a", b"b", b"c", disk=False)
        assert not client.inbox
        made.run_disk()
        assert client.expect(1, spec.BasicAck) == spec.BasicAck(3, True)
        client.publish(1, "q", b"d")
        assert client.expect(1, spec.BasicAck) == spec.BasicAck(4, False)

    def test_transient_and_unroutable_messages_are_confirmed_immediately(self) -> None:
        _, client = pair()
        queue(client)
        client.call(1, spec.ConfirmSelect(), spec.ConfirmSelectOk)
        client.publish(1, "q", b"a", header=b"\x00\x00", disk=False)
        assert client.expect(1, spec.BasicAck).delivery_tag == 1
        client.publish(1, "nowhere", b"b", disk=False)
        assert client.expect(1, spec.BasicAck).delivery_tag == 2

    def test_a_return_precedes_its_confirm(self) -> None:
        _, client = pair()
        client.call(1, spec.ConfirmSelect(), spec.ConfirmSelectOk)
        client.publish(1, "nowhere", b"a", b"", mandatory=True)
        for body in (b"a", b""):
            returned = client.inbox.popleft()
            assert returned.method == spec.BasicReturn(312, "NO_ROUTE", "", "nowhere")
            assert (returned.header, returned.body) == (PERSISTENT, body)
        assert client.expect(1, spec.BasicAck) == spec.BasicAck(2, True)

    @pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
    def test_refused_messages_are_nacked(self, overflow: str) -> None:
        made, client = pair()
        queue(client, "dead")
        queue(
            client,
            "q",
            {
                "x-max-length": 3,
                "x-overflow": overflow,
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": "dead",
            },
        )
        client.call(1, spec.ConfirmSelect(), spec.ConfirmSelectOk)
        client.publish(1, "q", *[b"%d" % i for i in range(5)])
        assert client.expect(1, spec.BasicAck) == spec.BasicAck(3, True)
        assert client.expect(1, spec.BasicNack) == spec.BasicNack(4, False, False)
        assert client.expect(1, spec.BasicNack) == spec.BasicNack(5, False, False)
        client.get(1, "q", no_ack=True)
        client.publish(1, "q", b"5", b"6")
        assert client.expect(1, spec.BasicAck) == spec.BasicAck(6, False)
        assert client.expect(1, spec.BasicNack) == spec.BasicNack(7, False, False)
        assert bodies(made) == [b"1", b"2", b"5"]
        assert bodies(made, "dead") == ([b"3", b"4", b"6"] if overflow.endswith("dlx") else [])

    def test_acks_and_nacks_that_alternate_are_sent_in_order(self) -> None:
        _, client = pair()
        queue(client, "q", {"x-max-length-bytes": 4, "x-overflow": "reject-publish"})
        client.call(1, spec.ConfirmSelect(), spec.ConfirmSelectOk)
        client.publish(1, "q", b"12", b"1234", b"1", b"12", b"1", b"1")
        client.collect()
        answers = [
            (said.method.NAME, said.method.delivery_tag, said.method.multiple)  # type: ignore[attr-defined]
            for said in client.inbox
        ]
        assert answers == [
            ("basic.ack", 1, False),
            ("basic.nack", 2, False),
            ("basic.ack", 3, False),
            ("basic.nack", 4, False),
            ("basic.ack", 5, False),
            ("basic.nack", 6, False),
        ]

    def test_an_error_does_not_drop_earlier_confirms(self) -> None:
        made, client = pair()
        queue(client)
        client.call(1, spec.ConfirmSelect(), spec.ConfirmSelectOk)
        client.publish(1, "q", b"a", disk=False)
        client.publish(1, "q", b"b", exchange="nowhere", disk=False)
        assert not client.inbox
        made.run_disk()
        assert client.expect(1, spec.BasicAck).delivery_tag == 1
        fails_channel(client, 1, codes.NOT_FOUND, "no exchange 'nowhere'")


class TestPublishing:
    def test_invalid_publishes_close_the_channel(self) -> None:
        made, client = pair()
        made.broker.directory.record_access(
            made.broker.access.set_topic_permission("guest", "/", "amq.topic", "^ok", ".*")
        )
        for exchange, key, header, code in (
            ("nowhere", "", PERSISTENT, codes.NOT_FOUND),
            ("amq.topic", "no", PERSISTENT, codes.ACCESS_REFUSED),
            ("amq.topic", "ok", Properties(headers={"CC": ["no"]}).encode(), codes.ACCESS_REFUSED),
            ("", "q", Properties(user_id="root").encode(), codes.PRECONDITION_FAILED),
            ("", "q", Properties(expiration="x").encode(), codes.PRECONDITION_FAILED),
            ("", "q", Properties(headers={"CC": 5}).encode(), codes.PRECONDITION_FAILED),
        ):
            client.publish(1, key, b"x", exchange=exchange, header=header)
            closed = fails_channel(client, 1, code)
            assert (closed.class_id, closed.method_id) == (60, 40)
            client.open_channel(1)
        client.publish(1, "ok.a", b"x", exchange="amq.topic", header=Properties(user_id="guest").encode())
        assert not client.inbox

    def test_a_withdrawn_permission_takes_effect(self) -> None:
        made, client = pair()
        queue(client)
        client.publish(1, "q", b"a")
        made.broker.directory.record_access(made.broker.access.set_permission("guest", "/", ".*", "^$", ".*"))
        client.publish(1, "q", b"b")
        fails_channel(client, 1, codes.ACCESS_REFUSED, "exchange 'amq.default'")
        assert bodies(made) == [b"a"]

    def test_a_changed_topology_takes_effect(self) -> None:
        made, client = pair()
        queue(client, "a")
        client.publish(1, "", b"0", exchange="amq.fanout")
        for name in ("a", "b"):
            queue(client, name)
            client.call(1, spec.QueueBind(name, "amq.fanout", ""), spec.QueueBindOk)
            client.publish(1, "", b"x", exchange="amq.fanout")
        client.call(1, spec.QueueUnbind("a", "amq.fanout", ""), spec.QueueUnbindOk)
        client.publish(1, "", b"y", exchange="amq.fanout")
        assert (bodies(made, "a"), bodies(made, "b")) == ([b"x", b"x"], [b"x", b"y"])

    def test_cc_and_bcc_are_routed(self) -> None:
        made, client = pair()
        for name in "abc":
            queue(client, name)
        props = Properties(headers={"CC": ["b", "a"], "BCC": ["c", "nowhere"]}).encode()
        client.publish(1, "a", b"x", header=props, mandatory=True)
        assert [bodies(made, name) for name in "abc"] == [[b"x"]] * 3
        found = client.get(1, "c")
        assert found is not None
        assert Properties.decode(found.header).headers == {"CC": ["b", "a"]}
        client.publish(1, "nowhere", b"y", header=props, mandatory=True)
        assert not client.inbox
        assert bodies(made, "b") == [b"x", b"y"]

    def test_the_priority_of_a_message_orders_its_delivery(self) -> None:
        made, client = pair()
        queue(client, "q", {"x-max-priority": 5})
        for i, priority in enumerate([0, 9, 5, None, 255, 1]):
            client.publish(1, "q", b"%d" % i, header=Properties(priority=priority).encode())
        assert bodies(made) == [b"1", b"2", b"4", b"5", b"0", b"3"]


def test_redeliveries_to_a_client_that_does_not_read_are_bounded() -> None:
    """A recover of 13 bytes must not load all unacknowledged messages of the client again each time."""
    sent = [b"%02d" % i * 50_000 for i in range(20)]
    made, client = consuming(0)
    for body in sent:
        client.publish(1, "q", body)
    assert len(client.deliveries()) == 20
    made.receive(client.port, method_frame(2, spec.BasicRecoverAsync(False)) * 100)
    made.end_turn()
    assert len(client.port.sent) < 3 * sum(map(len, sent))
    made.run_disk()
    deliveries = client.deliveries()
    assert [delivery.body for delivery in deliveries[-20:]] == sent
    client.call(2, spec.ChannelClose(200, "", 0, 0), spec.ChannelCloseOk)
    assert bodies(made) == sent


def test_unacknowledged_messages_can_be_listed_in_parts() -> None:
    """The list includes messages settled in a transaction, which its branch holds."""
    made, client = consuming(0, *[b"%d" % i for i in range(9)])
    assert len(client.deliveries()) == 9
    client.call(2, spec.TxSelect(), spec.TxSelectOk)
    client.send(2, spec.BasicAck(3, True), spec.BasicAck(5))
    positions: list[int] = []
    for holder in made.broker.engine.holders:
        everything = list(each_held(holder))
        positions += [entry.position for _, entry in everything]
        for most in (1, 2, 4, 20):
            found: list[tuple[Consumer, Entry]] = []
            while part := holder.held_part(len(found), most):
                assert len(part) <= most
                found += part
            assert found == everything
    assert sorted(positions) == list(range(1, 10))


class TestLargeTransactions:
    """A client's large transaction is committed and rolled back in pieces, with turns for other clients in between."""

    COUNT = 3000

    def transaction(self, *, settling: bool = False) -> tuple[Server, SimClient, SimClient]:
        """Return a client with an open transaction of messages that differ, or of settlements; and another client."""
        made, client = pair()
        queue(client)
        client.open_channel(2, mode="tx")
        if settling:
            client.publish(1, "q", *[b"%d" % i for i in range(self.COUNT)])
            client.call(2, spec.BasicConsume("q", "t"), spec.BasicConsumeOk)
            client.deliveries()
            client.send(2, *[spec.BasicAck(i) for i in range(1, self.COUNT + 1)])
        else:
            for i in range(self.COUNT):
                client.publish(2, "q", b"%d" % i, header=HEADERS[i % 2], disk=False)
        other = SimClient(made)
        other.open_channel(1)
        queue(other, "other")
        return made, client, other

    def step(self, made: Server, client: SimClient) -> bool:
        """Do one turn of the client's request. Return whether it is finished."""
        made.broker.engine.end_turn()
        client.port.endpoint.receive(b"")
        return not client.port.endpoint._reader._busy

    @pytest.mark.rule("FAIR-1")
    @pytest.mark.rule("TX-8")
    @pytest.mark.parametrize("method", [spec.TxCommit(), spec.TxRollback()])
    @pytest.mark.parametrize("settling", [False, True])
    def test_others_are_served_in_between(self, method: Method, settling: bool) -> None:
        made, client, other = self.transaction(settling=settling)
        made.broker.engine.requests.turn = 10
        made.broker.engine.requests.renew()
        client.port.endpoint.receive(method_frame(2, method) + method_frame(2, spec.BasicQos(0, 7)))
        turns = 1
        while not self.step(made, client):
            other.port.endpoint.receive(b"".join(message(1, b"%d" % turns, key="other")))
            turns += 1
            assert bodies(made, "other") == [b"%d" % i for i in range(1, turns)]
        assert turns >= 2
        made.end_turn()
        made.run_disk()
        client.expect(2, spec.TxCommitOk if isinstance(method, spec.TxCommit) else spec.TxRollbackOk)
        client.expect(2, spec.BasicQosOk)
        committed = isinstance(method, spec.TxCommit) and not settling
        assert bodies(made) == ([b"%d" % i for i in range(self.COUNT)] if committed else [])
        client.call(2, spec.TxCommit(), spec.TxCommitOk)
        client.send(2, spec.ChannelClose(200, "", 0, 0))
        while made.broker.engine.unfinished:
            made.end_turn()
        left = [b"%d" % i for i in range(self.COUNT)]
        rolled_back = isinstance(method, spec.TxRollback)
        assert bodies(made) == (left if rolled_back is settling else [])

    @pytest.mark.rule("TX-5")
    @pytest.mark.rule("TX-10")
    @pytest.mark.parametrize("method", [spec.TxCommit(), spec.TxRollback()])
    @pytest.mark.parametrize("settling", [False, True])
    @pytest.mark.parametrize("turns", [1, 2, 5, 50, 500, 900, 1000, 1200])
    def test_a_client_that_goes_leaves_all_of_it_or_nothing(self, method: Method, settling: bool, turns: int) -> None:
        made, client, other = self.transaction(settling=settling)
        made.broker.engine.requests.turn = 10
        made.broker.engine.requests.renew()
        client.port.endpoint.receive(method_frame(2, method))
        for _ in range(turns):
            if self.step(made, client):
                break
        client.lose()
        while made.broker.engine.unfinished:
            made.end_turn()
        made.run_disk()
        found, whole = bodies(made), [b"%d" % i for i in range(self.COUNT)]
        assert found in ([], whole)
        if isinstance(method, spec.TxRollback):
            assert found == (whole if settling else [])
        assert bodies(made) == found
        assert not made.broker.directory.vhost("/").queue("q").unsettled
        made.tidy()
        assert sum(segment.live for segment in made.journal._table) == len(found)
        other.call(1, spec.QueueDelete("q"), spec.QueueDeleteOk)


class TestHeldMemory:
    """The memory that a user and a virtual host hold is bounded, and does not count any more when its owner goes."""

    LIMIT = 8 * STEP

    def full(self, *bodies: bytes) -> tuple[Server, SimClient]:
        """Return a client that has received so many messages that its user may hold no more."""
        made, client = consuming()
        made.broker.holdings.user_limit = self.LIMIT
        client.publish(1, "q", *bodies or [b"x" * 1000] * 3000)
        return made, client

    @pytest.mark.rule("FAIR-3")
    def test_unacknowledged_deliveries_stop_at_the_limit_and_go_on(self) -> None:
        made, client = self.full()
        other = SimClient(made)
        other.open_channel(1)
        got = len(tags(client))
        assert 100 < got < 3000
        assert made.broker.holdings.of_user("guest") >= self.LIMIT
        seen = got
        while got:
            assert made.broker.holdings.of_user("guest") < self.LIMIT + 2000 * 2000
            client.send(2, spec.BasicAck(seen, True))
            got = len(tags(client))
            seen += got
        assert seen == 3000
        client.lose()
        other.lose()
        assert made.broker.holdings.of_user("guest") == 0

    @pytest.mark.rule("FAIR-3")
    @pytest.mark.parametrize(("count", "size"), [(400, 0), (400, 100), (10, 20_000), (3, 100_000)])
    def test_deliveries_one_at_a_time_count_except_for_a_few_steps(self, count: int, size: int) -> None:
        made, client = consuming()
        for _ in range(count):
            client.publish(1, "q", b"x" * size)
        held = count * (ENTRY_COST + size)
        assert held - 4 * STEP <= made.broker.holdings.of_user("guest") <= held + 2 * STEP
        assert made.broker.holdings.of_user("guest") > STEP

    @pytest.mark.rule("FAIR-3")
    def test_growth_at_the_limit_is_refused(self) -> None:
        _, client = self.full()
        client.deliveries()
        for number, method in enumerate((spec.BasicConsume("q", "more"), spec.BasicGet("q")), 3):
            client.open_channel(number)
            client.send(number, method)
            fails_channel(client, number, codes.RESOURCE_ERROR, "no memory for", "user 'guest' holds")
        client.open_channel(5)
        assert client.get(5, "q", no_ack=True) is not None
        client.open_channel(6, mode="tx")
        client.publish(6, "q", b"x")
        fails_channel(client, 6, codes.RESOURCE_ERROR, "no memory for the transaction")
        client.call(2, spec.ChannelClose(200, "", 0, 0), spec.ChannelCloseOk)
        client.open_channel(7, mode="tx")
        client.publish(7, "q", b"y")
        client.call(7, spec.TxCommit(), spec.TxCommitOk)

    @pytest.mark.rule("FAIR-2")
    def test_nothing_counts_after_the_connection(self) -> None:
        made, client = self.full(b"x")
        client.deliveries()
        client.open_channel(3, mode="tx")
        client.publish(3, "q", b"y" * 5000)
        assert made.broker.holdings.of_user("guest") > 0
        assert made.broker.holdings.of_vhost("/") == made.broker.holdings.of_user("guest")
        client.lose()
        assert made.broker.holdings.of_user("guest") == made.broker.holdings.of_vhost("/") == 0
