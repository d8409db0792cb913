"""From bytes to frames: pieces, limits, faults, and the turn's budget."""

from __future__ import annotations

import random

import pytest

from escrowmq.core.queues.queue import Session as QueueSession
from escrowmq.core.topology.declaration import Declaration
from escrowmq.wire.amqp10.codec.frames import EMPTY_FRAME, PROTOCOL_HEADER, SASL, SASL_HEADER, frame
from escrowmq.wire.amqp10.codec.performatives import (
    FIRST,
    SECOND,
    SENDER,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Transfer,
    encode_performative,
)
from escrowmq.wire.amqp10.codec.sasl import SaslInit
from escrowmq.wire.amqp10.codec.states import Accepted, DeliveryState, Rejected
from escrowmq.wire.amqp10.codec.termini import Coordinator, Source, Target
from escrowmq.wire.amqp10.codec.types import Symbol
from escrowmq.wire.amqp10.errors import DECODE_ERROR, FRAMING_ERROR, LIMIT_EXCEEDED, NOT_ALLOWED
from tests.unit.wire.amqp10.clients import Client, Server, body, connected, message, server

OPENING = b"".join(
    (
        SASL_HEADER,
        frame(0, encode_performative(SaslInit(Symbol("PLAIN"), b"\0guest\0guest")), type=SASL),
        PROTOCOL_HEADER,
        frame(0, encode_performative(Open("c"))),
        frame(0, encode_performative(Begin(next_outgoing_id=0, incoming_window=9, outgoing_window=9))),
        frame(
            0,
            encode_performative(Attach("s", 0, SENDER, source=Source(), target=Target("q"), initial_delivery_count=0)),
        ),
    )
)
POSTS = b"".join(
    (
        frame(0, encode_performative(Transfer(0, 0, b"0", 0, False)), message(b"a" * 20)),
        EMPTY_FRAME,
        frame(0, encode_performative(Transfer(0, 1, b"1", 0, False)), message(b"b" * 20)),
        frame(0, encode_performative(Transfer(0, 2, b"2", 0, False)), message(b"c" * 20)),
    )
)


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 64, len(OPENING)])
def test_input_may_arrive_in_pieces(piece: int) -> None:
    made = server()
    client = Client(made, opens=False)
    for data in (OPENING, POSTS):
        for at in range(0, len(data), piece):
            client.send_bytes(data[at : at + piece])
    assert made.broker.directory.vhost("/").queue("q").ready == 3
    outcomes = [each.performative for each in client.inbox if isinstance(each.performative, Disposition)]
    assert all(each.state == Accepted() for each in outcomes)
    assert outcomes[-1].last == 2 or outcomes[-1].first == 2


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x00\x00\x07\x02\x00\x00\x00",
        b"\xff\xff\xff\xff\x02\x00\x00\x00",
        b"\x00\x00\x00\x08\x01\x00\x00\x00",
        b"\x00\x00\x00\x08\x03\x00\x00\x00",
        b"\x00\x00\x00\x08\x02\x05\x00\x00",
    ],
)
def test_a_malformed_frame_closes_the_connection(data: bytes) -> None:
    _, client = connected()
    client.send_bytes(data)
    client.closed(FRAMING_ERROR)


@pytest.mark.parametrize(
    "body", [b"\x00", b"\x40", b"\x00\x53\x14\xc0\x01\x00", b"\x00\x53\x99\x45", b"\x00\x53\x12\x45"]
)
def test_a_malformed_performative_closes_the_connection(body: bytes) -> None:
    _, client = connected()
    client.send_bytes(frame(0, body))
    client.closed(DECODE_ERROR)


def test_an_extended_header_is_skipped() -> None:
    _, client = connected()
    body = encode_performative(Flow(incoming_window=1, next_outgoing_id=0, outgoing_window=1, echo=True))
    client.send_bytes((len(body) + 12).to_bytes(4, "big") + b"\x03\x00\x00\x00" + b"skip" + body)
    client.expect(Flow)


@pytest.mark.parametrize(
    "performative", [Flow(incoming_window=1, next_outgoing_id=0, outgoing_window=1), End(), Transfer(0)]
)
def test_a_channel_without_a_session_closes_the_connection(performative: object) -> None:
    _, client = connected()
    client.send(5, performative)
    client.closed(NOT_ALLOWED)


def test_a_channel_in_use_closes_the_connection() -> None:
    _, client = connected()
    client.send(0, Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1))
    client.closed(NOT_ALLOWED)


@pytest.mark.rule("FAIR-1")
def test_a_turn_does_a_bounded_amount_of_work() -> None:
    made, client = connected()
    frames = frame(0, encode_performative(Flow(incoming_window=1, next_outgoing_id=0, outgoing_window=1, echo=True)))
    made.receive(client.port, frames * 1000)
    made.broker.engine.turn.end()
    first = client.port.endpoint.output()
    assert 0 < sum(map(len, first)) < 1000 * 15
    made.end_turn()
    client.collect()
    assert made.broker.engine.requests.left > 0


@pytest.mark.parametrize("seed", range(40))
def test_any_bytes_are_handled(seed: int) -> None:
    """Damaged input are read to their end, or end with an error; nothing else happens."""
    chance = random.Random(seed)
    made = server()
    client = Client(made, opens=False)
    for each in (OPENING, POSTS):
        data = bytearray(each)
        for _ in range(chance.randrange(4)):
            data[chance.randrange(8, len(data))] = chance.randrange(256)
        made.receive(client.port, bytes(data))
        made.end_turn()
        made.run_disk()
    if not client.port.closed:
        made.lose(client.port)
    made.end_turn()
    assert not made.broker.engine.channels


def test_messages_before_a_close_are_published() -> None:
    made, client = connected()
    client.sender("q")
    client.send_bytes(
        frame(0, encode_performative(Transfer(0, 0, b"0", 0, True)), message(b"a"))
        + frame(0, encode_performative(Close()))
    )
    assert made.broker.directory.vhost("/").queue("q").ready == 1


@pytest.mark.rule("FAIR-1")
def test_a_performative_that_is_too_large_is_refused_before_it_is_decoded() -> None:
    _, client = connected()
    flow = Flow(incoming_window=1, next_outgoing_id=0, outgoing_window=1, properties={Symbol("x"): "a" * 20_000})
    client.send(0, flow)
    error = client.expect(Close).error
    assert error is not None
    assert error.condition == LIMIT_EXCEEDED


@pytest.mark.rule("FAIR-1")
@pytest.mark.parametrize("symbolic", [False, True])
def test_the_map_of_an_attach_may_be_large(symbolic: bool) -> None:
    _, client = connected()
    unsettled: dict[bytes, DeliveryState | None] = {b"%d" % i: None for i in range(5000)}
    attach = Attach("l", 0, SENDER, target=Target("q"), source=Source(), unsettled=unsettled, initial_delivery_count=0)
    encoded = encode_performative(attach)
    if symbolic:
        encoded = b"\x00\xa3\x10amqp:attach:list" + encoded[3:]
    client.send_bytes(frame(0, encoded))
    assert client.expect(Attach).unsettled == {}


@pytest.mark.rule("FAIR-1")
def test_a_large_performative_uses_up_the_work_of_a_turn() -> None:
    made, client = connected()
    requests = made.broker.engine.requests
    requests.renew()
    unsettled: dict[bytes, DeliveryState | None] = {b"%d" % i: None for i in range(10_000)}
    attach = Attach("l", 0, SENDER, target=Target("q"), source=Source(), unsettled=unsettled, initial_delivery_count=0)
    made.receive(client.port, frame(0, encode_performative(attach)))
    assert requests.left < 0


def test_a_command_to_the_broker_is_no_larger_than_a_frame() -> None:
    _, client = connected(frame_max=4096)
    client.sender(None, target=Coordinator())
    for number in range(2):
        first = number == 0
        transfer = Transfer(0, 0 if first else None, b"t" if first else None, settled=False, more=True)
        client.send(0, transfer, payload=b"x" * 3000)
    client.detached(0, "amqp:link:message-size-exceeded")


def with_many_queues(kind: str = "fanout") -> tuple[Server, Client]:
    """Return a client with a link to an exchange that is bound to 1,500 queues."""
    made, client = connected()
    vhost = made.broker.directory.vhost("/")
    for i in range(1500):
        declaration = Declaration(True, False, False, {})
        made.broker.directory.declare_queue(vhost, f"q{i}", declaration, QueueSession("test"), generated=False)
        vhost.bind_queue(f"amq.{kind}", f"q{i}", "")
    made.end_turn()
    return made, client


def post(number: int, content: bytes, *, handle: int = 0, priority: int = 0, settled: bool = False) -> bytes:
    """Return the frame of a message. Those with different priorities do not form runs."""
    transfer = encode_performative(Transfer(handle, number, b"%d" % number, 0, settled))
    return frame(0, transfer, message(content, durable=True, priority=priority))


def filled(made: Server) -> int:
    return sum(len(queue.order) > 0 for queue in made.broker.directory.vhost("/").queues.values())


def contents(made: Server, name: str) -> list[bytes]:
    queue = made.broker.directory.vhost("/").queue(name)
    return [body(entry.content) for entry in queue.take(100)]


@pytest.mark.rule("FAIR-1")
@pytest.mark.parametrize("mode", [FIRST, SECOND])
def test_a_message_to_very_many_queues_is_answered_when_it_is_in_all_of_them_and_nothing_is_read_before(
    mode: int,
) -> None:
    made, client = with_many_queues()
    client.sender("/exchanges/amq.fanout", rcv_settle_mode=mode)
    client.sender("/queues/q0", 1, rcv_settle_mode=mode)
    made.receive(client.port, post(0, b"x") + post(1, b"y", handle=1))
    vhost = made.broker.directory.vhost("/")
    for _ in range(2):
        assert filled(made) < 1500
        assert vhost.queue("q0").ready <= 1
        made.end_one_turn()
        client.collect()
        assert client.idle()
    made.end_turn()
    made.run_disk()
    while made.broker.engine.turn.unfinished:
        made.end_turn()
    assert filled(made) == 1500
    assert contents(made, "q0") == [b"x", b"y"]
    client.collect()
    found = [each.performative for each in client.inbox if isinstance(each.performative, Disposition)]
    assert sorted(each.first for each in found) in ([0], [0, 1])
    assert all(each.state == Accepted() for each in found)


@pytest.mark.rule("ORD-1")
@pytest.mark.parametrize("kind", ["fanout", "headers"])
@pytest.mark.parametrize("settled", [False, True])
def test_messages_to_very_many_queues_keep_their_order(kind: str, settled: bool) -> None:
    made, client = with_many_queues(kind)
    client.sender(f"/exchanges/amq.{kind}")
    messages = [post(i, b"%d" % i, priority=level, settled=settled) for i, level in enumerate((1, 2, 2, 3))]
    made.receive(client.port, b"".join(messages))
    made.end_turn()
    for name in ("q0", "q1499"):
        assert contents(made, name) == [b"0", b"1", b"2", b"3"]


@pytest.mark.rule("FAIR-1")
@pytest.mark.parametrize("behind", [Detach(handle=0, closed=True), End(), Close()])
def test_no_frame_behind_a_message_to_very_many_queues_hastens_it(behind: Detach | End | Close) -> None:
    made, client = with_many_queues()
    client.sender("/exchanges/amq.fanout")
    made.receive(client.port, post(0, b"x") + frame(0, encode_performative(behind)))
    assert 0 <= filled(made) < 1500
    made.end_turn()
    made.run_disk()
    assert filled(made) == 1500
    client.collect()
    assert client.outcome(0).state == Accepted()
    client.expect(type(behind))


def test_a_message_behind_one_to_very_many_queues_is_lost_with_the_connection_before_it_is_published() -> None:
    made, client = with_many_queues()
    client.sender("/exchanges/amq.fanout")
    made.receive(client.port, post(0, b"x", priority=1) + post(1, b"y", priority=2))
    made.lose(client.port)
    while made.broker.engine.turn.unfinished:
        made.end_turn()
    assert contents(made, "q0") == [b"x"]
    assert contents(made, "q1499") == [b"x"]


def test_queues_that_refuse_a_message_to_very_many_others_have_it_rejected() -> None:
    made, client = with_many_queues()
    vhost = made.broker.directory.vhost("/")
    declaration = Declaration(True, False, False, {"x-max-length": 0, "x-overflow": "reject-publish"})
    made.broker.directory.declare_queue(vhost, "full", declaration, QueueSession("test"), generated=False)
    vhost.bind_queue("amq.fanout", "full", "")
    client.sender("/exchanges/amq.fanout")
    client.send_bytes(post(0, b"x"))
    assert isinstance(client.outcome(0).state, Rejected)
    assert filled(made) == 1500


@pytest.mark.rule("FAIR-3")
def test_the_bytes_that_wait_for_the_end_of_a_publish_are_known() -> None:
    made, client = with_many_queues()
    client.sender("/exchanges/amq.fanout")
    made.receive(client.port, post(0, b"x"))
    behind = post(1, b"y")
    made.receive(client.port, behind)
    assert client.port.endpoint.unread == len(behind)
    made.end_turn()
    assert client.port.endpoint.unread == 0


@pytest.mark.rule("FAIR-1")
def test_of_thousands_of_empty_frames_a_turn_reads_only_a_part() -> None:
    made, client = connected()
    made.receive(client.port, EMPTY_FRAME * 3000)
    assert client.port.endpoint.unread > 8 * 1500
    made.end_turn()
    assert client.port.endpoint.unread == 0
