"""The reading loop with any segmentation of the stream and any broken byte."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from escrowmq.core.budget import METHOD, SHARE, STEPS, TURN
from escrowmq.core.queues.queue import Queue
from escrowmq.wire.amqp091 import codes, spec
from escrowmq.wire.amqp091.frames import (
    CONTENT_HEADER,
    HEARTBEAT,
    body_frames,
    content_frames,
    frame,
    header_frame,
    method_frame,
)
from escrowmq.wire.amqp091.handshake import State
from escrowmq.wire.amqp091.method import Method
from escrowmq.wire.amqp091.properties import Properties
from tests.harness.client import SimClient, connect
from tests.harness.frames import publish_frames
from tests.unit.wire.amqp091.clients import (
    PERSISTENT,
    Server,
    bodies,
    fails_channel,
    fails_connection,
    message,
    opening,
    pair,
    queue,
    server,
)

SMALL = spec.ConnectionTuneOk(0, 4096, 0)
TRANSIENT = Properties(content_type="text/plain").encode()
PUBLISH = spec.BasicPublish("", "q")


def prelude() -> bytes:
    """Return a connection: channel 1 confirms, channel 2 has transactions, channel 3 consumes from a queue."""
    return opening(SMALL) + b"".join(
        method_frame(channel, method)
        for channel, method in (
            (1, spec.ChannelOpen()),
            (1, spec.ConfirmSelect()),
            (2, spec.ChannelOpen()),
            (2, spec.TxSelect()),
            (3, spec.ChannelOpen()),
            (3, spec.QueueDeclare("q", durable=True)),
            (3, spec.QueueDeclare("taken")),
            (3, spec.BasicQos(0, 20)),
            (3, spec.BasicConsume("taken", "tag")),
        )
    )


lengths = st.sampled_from([0, 1, 2, 2, 2, 7, 4088, 4089, 9000])
publishes = st.builds(
    lambda channel, size, props, key: message(channel, b"%0*d" % (size, size) if size else b"", props, key),
    st.sampled_from([1, 2, 3]),
    lengths,
    st.sampled_from([PERSISTENT, PERSISTENT, TRANSIENT]),
    st.sampled_from(["q", "q", "taken", "nowhere"]),
)
methods = st.sampled_from(
    [
        [method_frame(2, spec.TxCommit())],
        [method_frame(2, spec.TxRollback())],
        [method_frame(3, spec.BasicAck(1))],
        [method_frame(3, spec.BasicAck(2))],
        [method_frame(3, spec.BasicAck(3, True)), method_frame(3, spec.BasicAck(4))],
        [method_frame(3, spec.BasicNack(0, True, True))],
        [method_frame(3, spec.BasicGet("q", True))],
        [method_frame(1, spec.ChannelClose(200, "", 0, 0)), method_frame(1, spec.ChannelOpen())],
        [method_frame(4, spec.ChannelOpen()), method_frame(4, spec.BasicGet("q"))],
        message(1, b"x", key="q" * 255),
        [HEARTBEAT],
    ]
)
streams = st.lists(publishes | publishes | methods, max_size=12)


def feed(stream: bytes, cuts: list[int]) -> tuple[Server, SimClient | None, bytes]:
    """Return a server that received the stream in pieces in one turn, and stopped reading once it closed the
    connection.
    """
    made = server()
    port = connect(made)
    at = 0
    for cut in [*sorted(cuts), len(stream)]:
        if port.endpoint.state in {State.CLOSING, State.CLOSED}:
            break
        made.receive(port, stream[at:cut])
        at = max(at, cut)
    made.end_turn()
    made.run_disk()
    return made, None, bytes(port.sent)


@settings(max_examples=150)
@given(streams, st.data(), st.booleans())
def test_the_segmentation_of_the_stream_makes_no_difference(
    plan: list[list[bytes]], data: st.DataObject, heartbeats: bool
) -> None:
    between = HEARTBEAT if heartbeats else b""
    stream = prelude() + b"".join(piece + between for part in plan for piece in part)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=10))
    whole, _, said = feed(stream, [])
    parts, _, said_in_parts = feed(stream, cuts)
    assert said_in_parts == said
    assert bodies(parts) == bodies(whole)


@settings(max_examples=150)
@given(streams, st.data())
def test_the_segmentation_makes_no_difference_with_broken_bytes(plan: list[list[bytes]], data: st.DataObject) -> None:
    stream = bytearray(prelude() + b"".join(piece for part in plan for piece in part))
    begin = len(prelude())
    for _ in range(data.draw(st.integers(1, 2))):
        if begin < len(stream):
            stream[data.draw(st.integers(begin, len(stream) - 1))] = data.draw(st.sampled_from([0, 1, 2, 206, 255]))
    cuts = data.draw(st.lists(st.integers(begin, len(stream)), max_size=10))
    whole, _, said = feed(bytes(stream), [])
    parts, _, said_in_parts = feed(bytes(stream), cuts)
    assert said_in_parts == said
    assert bodies(parts) == bodies(whole)


def test_the_stream_may_arrive_byte_by_byte() -> None:
    stream = prelude() + b"".join(b"".join(message(1, b"%d" % i)) for i in range(20)) + b"".join(message(1, b""))
    assert feed(stream, list(range(len(stream))))[2] == feed(stream, [])[2]


def test_frames_of_several_channels_may_alternate() -> None:
    made, client = pair()
    client.open_channel(2)
    client.declare(1, "q")
    one, two = message(1, b"one" * 3000), message(2, b"two" * 3000)
    mixed = [piece for both in zip(one, two, strict=True) for piece in both]
    client.send_bytes(HEARTBEAT.join(mixed))
    assert bodies(made) == [b"one" * 3000, b"two" * 3000]


class TestContent:
    @pytest.mark.parametrize("first", [b"", b"x"])
    @pytest.mark.parametrize("size", [0, 1, 4087, 4088, 4089, 8176, 20_000])
    def test_bodies_of_any_size_are_read(self, first: bytes, size: int) -> None:
        made, client = pair()
        client.declare(1, "q")
        body = b"b" * size
        stream = b"".join([*message(1, first), *message(1, body), *message(1, b"last")])
        client.send_bytes(stream)
        assert bodies(made) == [first, body, b"last"]

    def test_empty_body_frames_are_ignored(self) -> None:
        made, client = pair()
        client.declare(1, "q")
        empty = frame(codes.FRAME_BODY, 1, b"")
        start, header, body = message(1, b"abc")
        client.send_bytes(start + header + empty + body)
        assert bodies(made) == [b"abc"]

    @pytest.mark.parametrize("seen", [b"", b"".join(message(1, b"before"))], ids=["first", "again"])
    @pytest.mark.parametrize(
        ("pieces", "code"),
        [
            ([header_frame(1, PERSISTENT, 1)], codes.UNEXPECTED_FRAME),
            ([frame(codes.FRAME_BODY, 1, b"x")], codes.UNEXPECTED_FRAME),
            ([method_frame(1, PUBLISH), frame(codes.FRAME_BODY, 1, b"x")], codes.UNEXPECTED_FRAME),
            ([method_frame(1, PUBLISH), method_frame(1, PUBLISH)], codes.UNEXPECTED_FRAME),
            ([method_frame(1, PUBLISH), *message(1, b"before")], codes.UNEXPECTED_FRAME),
            ([method_frame(1, PUBLISH), method_frame(1, spec.BasicAck(1))], codes.UNEXPECTED_FRAME),
            ([*message(1, b"xx")[:2], header_frame(1, PERSISTENT, 2)], codes.UNEXPECTED_FRAME),
            ([*message(1, b""), frame(codes.FRAME_BODY, 1, b"")], codes.UNEXPECTED_FRAME),
            ([*message(1, b"x")[:2], frame(codes.FRAME_BODY, 1, b"xx")], codes.FRAME_ERROR),
            (
                [*message(1, b"xxx")[:2], frame(codes.FRAME_BODY, 1, b"xx"), b"".join(message(1, b"x"))],
                codes.UNEXPECTED_FRAME,
            ),
            (
                [method_frame(1, PUBLISH), frame(codes.FRAME_HEADER, 1, CONTENT_HEADER.pack(60, 1, 0) + PERSISTENT)],
                codes.FRAME_ERROR,
            ),
            (
                [method_frame(1, PUBLISH), frame(codes.FRAME_HEADER, 1, CONTENT_HEADER.pack(61, 0, 0) + PERSISTENT)],
                codes.FRAME_ERROR,
            ),
            ([method_frame(1, PUBLISH), frame(codes.FRAME_HEADER, 1, b"\x00\x3c")], codes.SYNTAX_ERROR),
            ([method_frame(1, PUBLISH), header_frame(1, b"\x00\x01", 0)], codes.SYNTAX_ERROR),
            ([header_frame(9, PERSISTENT, 0)], codes.CHANNEL_ERROR),
            ([frame(codes.FRAME_HEARTBEAT, 1, b"")], codes.FRAME_ERROR),
            ([frame(codes.FRAME_HEARTBEAT, 0, b"x")], codes.FRAME_ERROR),
            ([frame(4, 1, b"")], codes.FRAME_ERROR),
            ([method_frame(1, PUBLISH)[:-1] + b"\x00"], codes.FRAME_ERROR),
            ([b"".join(message(1, b"before"))[:-1] + b"\x00"], codes.FRAME_ERROR),
            ([frame(codes.FRAME_METHOD, 1, b"\x00\x3c")], codes.SYNTAX_ERROR),
            ([frame(codes.FRAME_METHOD, 1, b"\x00\x3c\x00\x28"), header_frame(1, PERSISTENT, 0)], codes.SYNTAX_ERROR),
            ([frame(codes.FRAME_METHOD, 1, b"\x00\x3c\x03\xe7")], codes.NOT_IMPLEMENTED),
            ([frame(codes.FRAME_METHOD, 1, b"\x00\x63\x00\x0a")], codes.NOT_IMPLEMENTED),
            ([method_frame(1, spec.BasicDeliver("t", 1, False, "", ""))], codes.COMMAND_INVALID),
            ([method_frame(1, spec.ConnectionOpen("/"))], codes.COMMAND_INVALID),
            ([method_frame(0, spec.ChannelOpen())], codes.COMMAND_INVALID),
            ([method_frame(1, spec.ChannelOpen())], codes.CHANNEL_ERROR),
            ([method_frame(9, spec.BasicGet("q"))], codes.CHANNEL_ERROR),
            (
                [method_frame(1, spec.BasicPublish("", "q", False, True)), header_frame(1, PERSISTENT, 0)],
                codes.NOT_IMPLEMENTED,
            ),
        ],
    )
    def test_malformed_streams_close_the_connection(self, seen: bytes, pieces: list[bytes], code: int) -> None:
        made, client = pair()
        client.declare(1, "q")
        client.send_bytes(seen + b"".join(pieces))
        fails_connection(client, code)
        assert len(bodies(made)) <= 1 + bool(seen)
        assert client.closed

    @pytest.mark.parametrize("header_size", [64, 65_536])
    @pytest.mark.parametrize("seen", [b"", b"".join(message(1, b"before"))], ids=["first", "again"])
    def test_a_message_that_is_too_large_closes_the_channel(self, seen: bytes, header_size: int) -> None:
        made, client = pair(message_size=10, header_size=header_size)
        client.open_channel(2)
        client.declare(1, "q")
        client.send_bytes(seen + b"".join(message(1, b"x" * 11)))
        fails_channel(client, 1, codes.PRECONDITION_FAILED, "message size 11 is larger than configured max size 10")
        client.publish(2, "q", b"x" * 10)
        assert bodies(made) == [b"before"] * bool(seen) + [b"x" * 10]
        if header_size == 64:
            client.publish(2, "q", b"x", header=Properties(message_id="m" * 100).encode())
            fails_channel(client, 2, codes.PRECONDITION_FAILED, "header size")

    def test_a_large_message_in_many_frames_is_read_to_its_end(self) -> None:
        made, client = pair(message_size=10_000)
        client.declare(1, "q")
        client.send_bytes(b"".join(message(1, b"x" * 50_000)))
        fails_channel(client, 1, codes.PRECONDITION_FAILED, "message size 50000")
        client.open_channel(1)
        client.publish(1, "q", b"fits")
        assert bodies(made) == [b"fits"]

    def test_a_frame_over_the_negotiated_size_is_refused(self) -> None:
        made = server()
        for seen in (b"", b"".join(message(1, b"y"))):
            port = connect(made)
            stream = opening(SMALL) + method_frame(1, spec.ChannelOpen()) + seen
            made.receive(port, stream + method_frame(1, PUBLISH) + content_frames(1, PERSISTENT, b"x" * 4097, 0))
            made.end_turn()
            assert port.endpoint.state is State.CLOSING
            assert b"FRAME_ERROR" in port.sent

    def test_messages_for_a_closed_channel_are_discarded(self) -> None:
        made, client = pair()
        client.declare(1, "q")
        bad = b"".join(message(1, b"x", Properties(expiration="soon").encode()))
        client.send_bytes(bad + b"".join(message(1, b"a")) + b"".join(message(1, b"b" * 5000)) + bad)
        client.send_bytes(method_frame(1, spec.BasicAck(77)) + b"".join(message(1, b"c")))
        fails_channel(client, 1, codes.PRECONDITION_FAILED, "invalid expiration 'soon'")
        assert bodies(made) == []
        client.open_channel(1)
        client.publish(1, "q", b"new")
        assert bodies(made) == [b"new"]


@given(st.binary(max_size=200))
def test_any_first_bytes_are_tolerated(data: bytes) -> None:
    made = server()
    port = connect(made)
    made.receive(port, data)
    made.end_turn()
    made.run_disk()
    assert not port.sent or port.sent.startswith((b"AMQP\x00\x00\x09\x01", b"\x01\x00\x00"))


@given(st.lists(st.tuples(st.sampled_from([1, 2, 3, 8]), st.integers(0, 2), st.binary(max_size=40)), max_size=8))
def test_any_frames_after_the_start_are_tolerated(frames_: list[tuple[int, int, bytes]]) -> None:
    made, client = pair()
    made.receive(client.port, b"".join(frame(kind, channel, payload) for kind, channel, payload in frames_))
    made.end_turn()
    made.run_disk()
    assert body_frames(1, b"", 0) == b""


# -- requests that take more work than one turn allows


def named(server: Server, name: str) -> Queue:
    return server.broker.directory.vhost("/").queues[name]


def arrive(client: SimClient, *methods: Method) -> None:
    """Methods on channel 1 arrive. The turn does not end."""
    client.server.receive(client.port, b"".join(method_frame(1, method) for method in methods))


@pytest.mark.rule("FAIR-1")
def test_a_turn_handles_a_bounded_number_of_methods_and_the_next_ones_the_rest() -> None:
    made, client = pair()
    arrive(client, *[spec.QueueDeclare(f"q{i}", no_wait=True) for i in range(2000)])
    queues = made.broker.directory.vhost("/").queues
    assert len(queues) == -(-TURN // METHOD)
    made.end_turn()
    assert list(queues) == [f"q{i}" for i in range(2000)]


@pytest.mark.rule("FAIR-1")
def test_every_connection_handles_something_in_each_turn() -> None:
    made, client = pair()
    other = SimClient(made, "other")
    other.open_channel(1)
    arrive(client, *[spec.QueueDeclare(f"q{i}", no_wait=True) for i in range(2000)])
    names = [f"other{i}" for i in range(10)]
    arrive(other, *[spec.QueueDeclare(name, no_wait=True) for name in names])
    queues = made.broker.directory.vhost("/").queues
    assert [name for name in names if name in queues] == names[: SHARE // METHOD]
    made.end_turn()
    assert set(names) <= queues.keys()


@pytest.mark.rule("FAIR-1")
def test_publishes_to_many_queues_are_counted_by_queue() -> None:
    made, client = pair()
    for i in range(100):
        queue(client, f"q{i}")
        client.call(1, spec.QueueBind(f"q{i}", "amq.fanout", ""), spec.QueueBindOk)
    messages = [publish_frames(1, spec.BasicPublish("amq.fanout", f"key {i}"), PERSISTENT, b"x") for i in range(2000)]
    made.receive(client.port, b"".join(messages))
    assert 0 < named(made, "q0").ready < 500
    made.end_turn()
    assert [named(made, f"q{i}").ready for i in range(100)] == [2000] * 100


@pytest.mark.rule("FAIR-1")
def test_walks_for_topic_permissions_are_counted() -> None:
    made, client = pair()
    queue(client, "q")
    vhost, access = made.broker.directory.vhost("/"), made.broker.access
    for i in range(30):
        vhost.declare_exchange(f"e{i}", "fanout")
    for i in range(900):
        vhost.bind_exchange(f"e{i // 30}", f"e{i % 30}", "")
    vhost.bind_exchange("e0", "amq.topic", "")
    vhost.bind_queue("amq.topic", "q", "#")
    access.set_topic_permission("guest", "/", "amq.topic", "^key", ".*")
    messages = [publish_frames(1, spec.BasicPublish("e0", f"key {i}"), PERSISTENT, b"x") for i in range(100)]
    made.receive(client.port, b"".join(messages))
    # Each new key takes two walks over 900 bindings: one for the permissions, one for the queues.
    assert 0 < named(made, "q").ready <= TURN * STEPS // 1800 + 1
    made.end_turn()
    assert named(made, "q").ready == 100


def own_ttl(number: int) -> bytes:
    properties = Properties(delivery_mode=2, expiration=str(3_600_000 + number)).encode()
    return publish_frames(1, PUBLISH, properties, b"x")


SMALL_FRAMES = {
    "publishes that are not alike": [own_ttl(number) for number in range(3000)],
    "gets": [method_frame(1, spec.BasicGet("expiring", no_ack=True))] * 3000,
    "commits": [method_frame(2, spec.TxCommit())] * 3000,
    "heartbeats": [HEARTBEAT] * 3000,
    "parts of a body": [
        method_frame(1, PUBLISH),
        header_frame(1, PERSISTENT, 3000),
        *[frame(codes.FRAME_BODY, 1, b"x")] * 3000,
    ],
}


@pytest.mark.rule("FAIR-1")
@pytest.mark.parametrize("what", SMALL_FRAMES)
def test_of_thousands_of_small_frames_a_turn_reads_only_a_part(what: str) -> None:
    made, client = pair()
    queue(client, "q")
    client.call(1, spec.QueueDeclare("expiring", arguments={"x-message-ttl": 3_600_000}), spec.QueueDeclareOk)
    client.open_channel(2)
    client.call(2, spec.TxSelect(), spec.TxSelectOk)
    if what == "gets":
        made.receive(client.port, publish_frames(1, spec.BasicPublish("", "expiring"), PERSISTENT, b"x") * 3000)
    made.end_turn()
    data = b"".join(SMALL_FRAMES[what])
    made.receive(client.port, data)
    assert client.port.endpoint.unread > len(data) // 2
    made.end_turn()
    assert client.port.endpoint.unread == 0
    counts = {"publishes that are not alike": 3000, "parts of a body": 1}
    assert named(made, "q").ready == counts.get(what, 0)
    assert named(made, "expiring").ready == 0


def with_many_queues() -> tuple[Server, SimClient]:
    made, client = pair()
    for i in range(1500):
        client.send(
            1, spec.QueueDeclare(f"q{i}", no_wait=True), spec.QueueBind(f"q{i}", "amq.fanout", "", no_wait=True)
        )
    return made, client


@pytest.mark.rule("FAIR-1")
def test_a_publish_to_very_many_queues_is_confirmed_when_it_is_in_all_of_them_and_nothing_is_read_before() -> None:
    made, client = with_many_queues()
    client.call(1, spec.ConfirmSelect(), spec.ConfirmSelectOk)
    fanout = publish_frames(1, spec.BasicPublish("amq.fanout", ""), PERSISTENT, b"x")
    behind = publish_frames(1, spec.BasicPublish("", "q0"), PERSISTENT, b"y")
    made.receive(client.port, fanout + behind)
    for _ in range(3):
        assert 0 < sum(len(named(made, f"q{i}").order) for i in range(1500)) < 1500
        assert named(made, "q0").ready == 1
        made.end_one_turn()
        client.collect()
        assert not client.inbox
    made.end_turn()
    made.run_disk()
    assert all(named(made, f"q{i}").ready for i in range(1500))
    assert bodies(made, "q0") == [b"x", b"y"]
    assert client.expect(1, spec.BasicAck).delivery_tag == 2


def test_publishes_to_very_many_queues_one_after_the_other_keep_their_order() -> None:
    made, client = with_many_queues()
    keys = ("", "a", "a", "b")
    messages = [
        publish_frames(1, spec.BasicPublish("amq.fanout", key), PERSISTENT, b"%d" % i) for i, key in enumerate(keys)
    ]
    made.receive(client.port, b"".join(messages))
    made.end_turn()
    for name in ("q0", "q1499"):
        assert bodies(made, name) == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("way", ["lost", "closed"])
def test_a_publish_to_very_many_queues_is_completed_without_its_client(way: str) -> None:
    made, client = with_many_queues()
    made.receive(client.port, publish_frames(1, spec.BasicPublish("amq.fanout", ""), PERSISTENT, b"x"))
    if way == "lost":
        made.lose(client.port)
    else:
        made.broker.directory.delete_queue(named(made, "q1499"))
        client.port.endpoint.shut("closed by an operator")
    while made.broker.engine.turn.unfinished:
        made.end_turn()
    left = [queue for queue in made.broker.directory.vhost("/").queues.values() if not queue.ready]
    assert not left


def test_bytes_that_arrive_behind_unfinished_work_are_handled_behind_it() -> None:
    made, client = pair()
    arrive(client, *[spec.QueueDeclare(f"q{i}", no_wait=True) for i in range(500)])
    arrive(client, spec.QueueDeclare("q499", passive=True))
    made.end_turn()
    made.run_disk()
    assert client.expect(1, spec.QueueDeclareOk).queue == "q499"


def unacknowledged(count: int) -> tuple[Server, SimClient]:
    """Channel 1 has so many messages of `q`, whose dead letters go to `dead`."""
    made, client = pair()
    queue(client, "dead")
    queue(client, "q", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    client.publish(1, "q", *[b"%d" % i for i in range(count)])
    client.call(1, spec.BasicConsume("q", "t"), spec.BasicConsumeOk)
    assert len(client.deliveries()) == count
    return made, client


@pytest.mark.rule("FAIR-1")
def test_many_rejections_by_one_method_are_divided_and_reading_waits_for_them() -> None:
    made, client = unacknowledged(1000)
    client.call(1, spec.BasicCancel("t"), spec.BasicCancelOk)
    arrive(client, spec.BasicNack(900, True, False), spec.QueueDeclare("late", no_wait=True))
    rejected = named(made, "dead").ready
    assert 0 < rejected <= TURN // 10 + 32
    assert "late" not in made.broker.directory.vhost("/").queues
    made.end_turn()
    assert named(made, "dead").ready == 900
    assert "late" in made.broker.directory.vhost("/").queues
    assert [entry.content for entry in named(made, "dead").order.take(900)] == [b"%d" % i for i in range(900)]
    assert named(made, "q").unsettled == 100


def test_a_client_that_is_lost_in_the_middle_gives_back_the_rest() -> None:
    made, client = unacknowledged(1000)
    arrive(client, spec.BasicNack(0, True, False))
    rejected = named(made, "dead").ready
    assert rejected < 1000
    client.lose()
    assert named(made, "dead").ready == rejected
    assert named(made, "q").ready == 1000 - rejected


def test_an_unknown_tag_is_refused_before_anything_is_rejected() -> None:
    made, client = unacknowledged(1000)
    client.send(1, spec.BasicNack(1001, True, False))
    fails_channel(client, 1, 406, "unknown delivery tag 1001")
    assert named(made, "dead").ready == 0
    assert named(made, "q").ready == 1000


@pytest.mark.parametrize("tag", [0, 20_000])
@pytest.mark.rule("FAIR-1")
def test_many_acknowledgements_by_one_method_are_divided(tag: int) -> None:
    made, client = pair()
    queue(client)
    client.publish(1, "q", *[b"x"] * 20_000)
    client.call(1, spec.BasicConsume("q", "t"), spec.BasicConsumeOk)
    assert len(client.deliveries()) == 20_000
    arrive(client, spec.BasicAck(tag, True))
    assert 0 < named(made, "q").unsettled < 20_000
    made.end_turn()
    assert named(made, "q").unsettled == 0


@pytest.mark.rule("FAIR-1")
def test_a_list_of_queues_that_the_user_may_not_read_is_made_in_pieces() -> None:
    made, client = pair()
    for i in range(5000):
        client.server.receive(client.port, method_frame(1, spec.QueueDeclare(f"q{i:04d}", no_wait=True)))
        if i % 100 == 0:
            made.end_turn()
    made.broker.directory.record_access(made.broker.access.set_permission("guest", "/", ".*", ".*", "q4999"))
    made.end_turn()
    arrive(client, spec.EscrowList(""))
    assert made.broker.engine.requests.left <= 0
    client.collect()
    assert not client.inbox
    made.end_turn()
    made.run_disk()
    assert client.expect(1, spec.EscrowListOk).queues == {"name": ["q4999"]}


@pytest.mark.rule("FAIR-3")
def test_the_bytes_that_wait_during_an_alarm_are_known() -> None:
    made, client = pair()
    queue(client, "q")
    endpoint = client.port.endpoint
    endpoint.block("low on memory")
    data = publish_frames(1, spec.BasicPublish("", "q"), PERSISTENT, b"x" * 1000)
    made.receive(client.port, data)
    assert endpoint.unread == len(data)
    endpoint.block("")
    made.receive(client.port, b"")
    assert endpoint.unread == 0
    assert named(made, "q").ready == 1
