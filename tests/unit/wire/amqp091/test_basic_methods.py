"""The basic class without publishing and settling: consuming, getting, streams, and the form of the answers."""

from __future__ import annotations

import pytest

from escrowmq.wire.amqp091 import codes, spec
from escrowmq.wire.amqp091.frames import CONTENT_FRAME_HEADER, content_frames, method_frame
from escrowmq.wire.amqp091.method import Method
from escrowmq.wire.amqp091.properties import Properties
from escrowmq.wire.amqp091.table import FieldTable, Timestamp
from tests.harness.client import SimClient, connect
from tests.unit.wire.amqp091.clients import Server, bodies, fails_channel, fails_connection, opening, pair, server

STREAM: FieldTable = {"x-queue-type": "stream"}


class TestConsume:
    def test_consumer_tags_are_generated_or_chosen_and_unique(self) -> None:
        _, client = pair()
        client.declare(1, "q")
        given = client.call(1, spec.BasicConsume("q", "mine"), spec.BasicConsumeOk)
        assert given.consumer_tag == "mine"
        made_up = {client.call(1, spec.BasicConsume("q", ""), spec.BasicConsumeOk).consumer_tag for _ in range(20)}
        assert len(made_up) == 20
        assert all(tag.startswith("amq.ctag-") for tag in made_up)
        client.send(1, spec.BasicConsume("q", "mine"))
        fails_connection(client, codes.NOT_ALLOWED, "attempt to reuse consumer tag 'mine'")

    def test_a_consumer_tag_belongs_to_its_channel(self) -> None:
        _, client = pair()
        client.open_channel(2)
        client.declare(1, "q")
        for channel in (1, 2):
            client.call(channel, spec.BasicConsume("q", "t"), spec.BasicConsumeOk)
        client.call(1, spec.BasicCancel("t"), spec.BasicCancelOk)
        client.publish(1, "q", b"x")
        (delivery,) = client.deliveries()
        assert delivery.channel == 2

    def test_a_cancelled_consumer_gets_no_messages(self) -> None:
        made, client = pair()
        client.declare(1, "q")
        client.call(1, spec.BasicConsume("q", "t"), spec.BasicConsumeOk)
        client.publish(1, "q", b"a")
        assert len(client.deliveries()) == 1
        client.send(1, spec.BasicCancel("t", True), spec.BasicCancel("never was"))
        assert client.expect(1, spec.BasicCancelOk).consumer_tag == "never was"
        client.publish(1, "q", b"b")
        assert bodies(made) == [b"b"]
        assert made.broker.directory.vhost("/").queue("q").unsettled == 1

    def test_the_answer_precedes_the_first_delivery(self) -> None:
        _, client = pair()
        client.declare(1, "q")
        client.publish(1, "q", b"x")
        client.send(1, spec.BasicConsume("q", "t"))
        client.expect(1, spec.BasicConsumeOk)
        assert client.bodies() == [b"x"]

    def test_no_wait_suppresses_the_answer(self) -> None:
        _, client = pair()
        client.declare(1, "q")
        client.publish(1, "q", b"x")
        client.send(1, spec.BasicConsume("q", "t", no_wait=True))
        assert client.bodies() == [b"x"]
        assert not client.inbox

    def test_an_exclusive_consumer_excludes_others(self) -> None:
        _, client = pair()
        client.declare(1, "q")
        client.call(1, spec.BasicConsume("q", "t", exclusive=True), spec.BasicConsumeOk)
        client.open_channel(2)
        client.send(2, spec.BasicConsume("q", "u"))
        fails_channel(client, 2, codes.ACCESS_REFUSED, "queue 'q' in vhost '/' in exclusive use")

    def test_an_auto_delete_queue_is_deleted_with_its_last_consumer(self) -> None:
        made, client = pair()
        client.declare(1, "q", auto_delete=True)
        client.call(1, spec.BasicConsume("q", "t"), spec.BasicConsumeOk)
        client.publish(1, "q", b"a")
        client.deliveries()
        client.call(1, spec.ChannelClose(200, "", 0, 0), spec.ChannelCloseOk)
        assert "q" not in made.broker.directory.vhost("/").queues

    def test_consumers_of_higher_priority_are_served_first(self) -> None:
        _, client = pair()
        client.declare(1, "q")
        client.call(1, spec.BasicConsume("q", "low", arguments={"x-priority": -5}), spec.BasicConsumeOk)
        client.call(1, spec.BasicConsume("q", "high", arguments={"x-priority": 5}), spec.BasicConsumeOk)
        client.publish(1, "q", b"a", b"b")
        assert {d.method.consumer_tag for d in client.deliveries()} == {"high"}  # type: ignore[attr-defined]

    @pytest.mark.parametrize("size", [0, 1, 4088, 4089, 20_000])
    def test_frames_are_no_larger_than_agreed(self, size: int) -> None:
        made, client = pair()
        client.declare(1, "q")
        port = connect(made)
        small = opening(spec.ConnectionTuneOk(0, 4096, 0)) + b"".join(
            method_frame(1, method) for method in (spec.ChannelOpen(), spec.BasicConsume("q", "t"), spec.BasicGet("q"))
        )
        made.receive(port, small)
        made.end_turn()
        port.sent.clear()
        client.publish(1, "q", b"x" * size)
        sizes = []
        at = 0
        while at < len(port.sent):
            length = int.from_bytes(port.sent[at + 3 : at + 7], "big")
            sizes.append(8 + length)
            at += 8 + length
        assert at == len(port.sent)
        assert len(sizes) == 2 + -(-size // 4088)
        assert max(sizes) <= 4096
        assert CONTENT_FRAME_HEADER.unpack_from(port.sent, sizes[0])[5] == size


class TestGet:
    def test_get_returns_messages_until_the_queue_is_empty(self) -> None:
        _, client = pair()
        client.declare(1, "q")
        client.publish(1, "q", b"a", b"")
        publish = method_frame(1, spec.BasicPublish("", "q"))
        client.send_bytes(publish + content_frames(1, b"\x00\x00", b"c" * 200_000, 131_072))
        for i, body in enumerate((b"a", b"", b"c" * 200_000)):
            found = client.get(1, "q")
            assert found is not None
            assert found.method == spec.BasicGetOk(i + 1, False, "", "q", 2 - i)
            assert found.body == body
        assert client.get(1, "q") is None
        client.send(1, spec.BasicNack(0, True, True))
        again = client.get(1, "q", no_ack=True)
        assert again is not None
        assert again.method == spec.BasicGetOk(4, True, "", "q", 2)

    def test_delivery_tags_continue_over_gets_and_deliveries(self) -> None:
        _, client = pair()
        client.declare(1, "q")
        client.publish(1, "q", b"a", b"b", b"c")
        client.get(1, "q", no_ack=True)
        client.get(1, "q")
        client.send(1, spec.BasicConsume("q", "t"))
        client.expect(1, spec.BasicConsumeOk)
        assert [d.method.delivery_tag for d in client.deliveries()] == [3]  # type: ignore[attr-defined]
        client.send(1, spec.BasicAck(2), spec.BasicAck(3))
        assert not client.inbox

    def test_what_is_refused(self) -> None:
        _, client = pair()
        client.send(1, spec.BasicGet("nothing"))
        fails_channel(client, 1, codes.NOT_FOUND, "no queue 'nothing' in vhost '/'")
        client.open_channel(1)
        client.declare(1, "s", arguments=STREAM)
        client.send(1, spec.BasicGet("s"))
        fails_connection(client, codes.NOT_IMPLEMENTED, "stream queue 's'")


class TestQos:
    def test_prefetch_sizes_are_not_implemented(self) -> None:
        _, client = pair()
        client.send(1, spec.BasicQos(1000, 0))
        fails_connection(client, codes.NOT_IMPLEMENTED, "prefetch_size!=0 (1000)")


class TestStreams:
    def stream(self) -> tuple[Server, SimClient]:
        made, client = pair()
        client.declare(1, "s", arguments=STREAM)
        for i in range(5):
            client.publish(1, "s", b"%d" % i)
            made.now += 1000
        client.open_channel(2, prefetch=100)
        return made, client

    @pytest.mark.parametrize(
        ("offset", "expected"),
        [
            ("first", [0, 1, 2, 3, 4]),
            ("last", [4]),
            ("next", []),
            (3, [3, 4]),
            (Timestamp(1002), [2, 3, 4]),
            ("1h", [0, 1, 2, 3, 4]),
            (None, []),
        ],
    )
    def test_a_reader_begins_at_its_offset(self, offset: str | int | None, expected: list[int]) -> None:
        _, client = self.stream()
        arguments: FieldTable = {} if offset is None else {"x-stream-offset": offset}
        client.send(2, spec.BasicConsume("s", "t", arguments=arguments))
        found = client.deliveries()
        assert [int(delivery.body) for delivery in found] == expected
        headers = [Properties.decode(delivery.header).headers for delivery in found]
        assert headers == [{"x-stream-offset": i} for i in expected]

    def test_reading_continues_as_messages_are_acknowledged(self) -> None:
        _, client = self.stream()
        client.call(2, spec.BasicQos(0, 2), spec.BasicQosOk)
        client.send(2, spec.BasicConsume("s", "t", arguments={"x-stream-offset": "first"}))
        assert client.bodies() == [b"0", b"1"]
        client.send(2, spec.BasicAck(2, True))
        assert client.bodies() == [b"2", b"3"]
        client.send(2, spec.BasicNack(3, False, True))
        assert client.bodies() == [b"4"]

    @pytest.mark.parametrize(
        ("method", "words"),
        [
            (spec.BasicConsume("s", "t", no_ack=True), "no_ack is not supported"),
            (spec.BasicConsume("s", "t", arguments={"x-stream-offset": "sometime"}), "invalid_stream_offset_arg"),
            (spec.BasicConsume("s", "t", arguments={"x-priority": 1}), "x-priority"),
        ],
    )
    def test_what_is_refused(self, method: Method, words: str) -> None:
        _, client = self.stream()
        client.send(2, method)
        fails_channel(client, 2, codes.PRECONDITION_FAILED, words)

    def test_a_reader_needs_a_prefetch_limit(self) -> None:
        _, client = self.stream()
        client.send(1, spec.BasicConsume("s", "t"))
        fails_channel(client, 1, codes.PRECONDITION_FAILED, "consumer prefetch count is not set")


class TestQuorum:
    def test_deliveries_are_counted(self) -> None:
        _, client = pair()
        client.declare(1, "dead")
        client.declare(
            1,
            "q",
            arguments={
                "x-queue-type": "quorum",
                "x-delivery-limit": 2,
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": "dead",
            },
        )
        client.publish(1, "q", b"poison", header=b"\x00\x00")
        for count in range(3):
            found = client.get(1, "q")
            assert found is not None
            headers = Properties.decode(found.header).headers or {}
            assert headers.get("x-delivery-count", 0) == count
            client.send(1, spec.BasicNack(count + 1, False, True))
        dead = client.get(1, "dead")
        assert dead is not None
        deaths = (Properties.decode(dead.header).headers or {})["x-death"]
        assert isinstance(deaths, list)
        assert isinstance(deaths[0], dict)
        assert deaths[0]["reason"] == "delivery_limit"


def test_reading_requires_permission() -> None:
    made = server(users=("guest", "writer"))
    made.broker.directory.record_access(made.broker.access.set_permission("writer", "/", ".*", ".*", "^$"))
    client = SimClient(made, user="writer")
    client.open_channel(1)
    client.declare(1, "q")
    for method in (spec.BasicGet("q"), spec.BasicConsume("q", "t")):
        client.send(1, method)
        fails_channel(client, 1, codes.ACCESS_REFUSED, "access to queue 'q' in vhost '/' refused for user 'writer'")
        client.open_channel(1)
