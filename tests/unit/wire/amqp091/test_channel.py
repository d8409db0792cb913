"""Channels: prefetch, publishing, the memory that they hold, and their fate when they end."""

from __future__ import annotations

import gc

import pytest

from escrowmq.core.access.holdings import STEP
from escrowmq.core.messages.entry import Entry
from escrowmq.core.queues.consumer import Consumer
from escrowmq.core.queues.discipline import ENTRY_COST
from escrowmq.wire.amqp091 import codes, spec
from escrowmq.wire.amqp091.content import Content
from escrowmq.wire.amqp091.frames import method_frame
from escrowmq.wire.amqp091.properties import Properties
from tests.harness.client import SimClient
from tests.harness.frames import publish_frames
from tests.harness.holding import each_held
from tests.unit.wire.amqp091.clients import PERSISTENT, Server, bodies, consuming, fails_channel, pair, queue


def tags(client: SimClient) -> list[int]:
    return [delivery.method.delivery_tag for delivery in client.deliveries()]  # type: ignore[attr-defined]


def test_messages_dealt_to_several_consumers_and_channels_keep_their_order() -> None:
    _, client = consuming(0)
    client.open_channel(3)
    client.call(2, spec.BasicConsume("q", "u"), spec.BasicConsumeOk)
    client.call(3, spec.BasicConsume("q", "v"), spec.BasicConsumeOk)
    sent = [b"a", b"", bytes(40_000), b"b", b"c", b"d", b"e", b"f"]
    client.publish(1, "q", *sent)
    found: dict[str, list[bytes]] = {}
    numbers: dict[int, list[int]] = {2: [], 3: []}
    for delivery in client.deliveries():
        assert isinstance(delivery.method, spec.BasicDeliver)
        found.setdefault(delivery.method.consumer_tag, []).append(delivery.body)
        numbers[delivery.channel].append(delivery.method.delivery_tag)
    assert [found[tag] for tag in ("t", "u", "v")] == [sent[0::3], sent[1::3], sent[2::3]]
    assert numbers == {2: [1, 2, 3, 4, 5, 6], 3: [1, 2]}


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

    @pytest.mark.rule("FAIR-3")
    @pytest.mark.parametrize("body", [100_000, 200_000, 10 << 20])
    def test_an_incomplete_message_counts_until_it_is_complete(self, body: int) -> None:
        made, client = pair()
        whole = publish_frames(3, spec.BasicPublish("", "nowhere"), b"\x00\x00", bytes(body), 128 << 10)
        client.open_channel(3)
        for part in (whole[: len(whole) // 4], whole[len(whole) // 4 : -1]):
            before = made.broker.holdings.of_user("guest")
            made.receive(client.port, part)
            grown = made.broker.holdings.of_user("guest") - before
            assert len(part) - 128 * 1024 - STEP <= grown <= len(part) + STEP  # but for a frame that is incomplete
        made.receive(client.port, whole[-1:])
        assert made.broker.holdings.of_user("guest") == made.broker.holdings.of_vhost("/") == 0

    @pytest.mark.rule("FAIR-3")
    def test_an_incomplete_message_above_the_limit_closes_its_channel_and_leaves_memory(self) -> None:
        made, client = consuming()
        made.broker.holdings.user_limit = 1 << 20
        client.open_channel(3)
        whole = publish_frames(3, spec.BasicPublish("", "nowhere"), b"\x00\x00", bytes(20 << 20), 128 << 10)
        start = len(publish_frames(3, spec.BasicPublish("", "nowhere"), b"\x00\x00", b""))
        made.receive(client.port, whole[:start])
        for at in range(start, 2 << 20, 128 << 10):
            made.receive(client.port, whole[at : at + (128 << 10)])
        made.end_turn()
        fails_channel(client, 3, codes.RESOURCE_ERROR, "no memory for a message that is incomplete", "user 'guest'")
        assert made.broker.holdings.of_user("guest") == STEP  # of the consumer
        assert not [one for one in gc.get_objects() if isinstance(one, Content) and one.held_bytes > 1000]
        client.open_channel(4)
        # A message that arrives whole is never incomplete.
        client.send_bytes(publish_frames(4, spec.BasicPublish("", "q"), b"\x00\x00", bytes(2 << 20), 128 << 10))
        assert len(client.deliveries()) == 1

    @pytest.mark.rule("FAIR-3")
    def test_many_small_incomplete_messages_are_bounded_together(self) -> None:
        made, client = pair()
        made.broker.holdings.user_limit = 1 << 20
        for number in range(3, 203):
            made.receive(client.port, method_frame(number, spec.ChannelOpen()))
            whole = publish_frames(number, spec.BasicPublish("", "nowhere"), b"\x00\x00", bytes(300), frame_max=108)
            made.receive(client.port, whole[:-108])
        assert made.broker.holdings.of_user("guest") <= 1 << 20
        made.end_turn()
        client.collect()
        assert sum(isinstance(one.method, spec.ChannelClose) for one in client.inbox) > 100

    @pytest.mark.rule("FAIR-3")
    def test_a_short_message_that_a_read_has_cut_is_published_at_the_limit(self) -> None:
        made, client = self.full()
        whole = publish_frames(1, spec.BasicPublish("", "q"), b"\x00\x00", b"x" * 1000)
        for size in range(1, len(whole)):
            made.receive(client.port, whole[:size])
            made.receive(client.port, whole[size:])
        client.deliveries()
        assert client.count(1, "q") > 0
        assert made.broker.holdings.of_user("guest") < self.LIMIT + (1 << 20)

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
