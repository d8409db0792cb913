"""A standby's answers to clients: each protocol's own refusal, with the leader's address in it."""

from __future__ import annotations

import asyncio

import pytest

from escrowmq.admin.replica import refusal_text
from escrowmq.client.reads import PLAN, PROPERTY, TASK
from escrowmq.server.listener import Bound, bind
from escrowmq.server.replica.reading import ReadingCopies
from escrowmq.server.replica.reading_process import ReadingError
from escrowmq.server.replica.refusing import Refusing
from escrowmq.wire.amqp091 import spec
from escrowmq.wire.amqp091.frames import method_frame
from escrowmq.wire.amqp091.table import FieldValue
from escrowmq.wire.amqp10.codec.frames import PROTOCOL_HEADER, SASL, SASL_HEADER, FrameReader, frame
from escrowmq.wire.amqp10.codec.performatives import Close, Open, decode_performative, encode_performative
from escrowmq.wire.amqp10.codec.sasl import SaslInit

LEADER = "amqp://leader.example:5673"


class FakeReading(ReadingCopies):
    """Answers a client that only reads with its kind, what it has sent, and what it sends then; or refuses it."""

    def __init__(self, refusal: str = "") -> None:
        self._refusal = refusal

    async def serve(
        self, kind: str, begun: bytes, skip: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if self._refusal:
            raise ReadingError(self._refusal)
        writer.write(f"{kind} {skip} ".encode() + begun + await reader.readexactly(4))


def asked(*steps: bytes, leader: str = LEADER, reading: ReadingCopies | None = None) -> bytes:
    """Connect to a standby, send each step when something has come back, and return all that it sends."""

    async def test() -> bytes:
        sockets = bind("127.0.0.1", 0)
        refusing = Refusing(lambda: leader, reading)
        await refusing.listen([Bound("amqp", "127.0.0.1", sockets)], None, 16)
        reader, writer = await asyncio.open_connection(*sockets[0].getsockname())
        found = b""
        for i, step in enumerate(steps):
            writer.write(step)
            if i < len(steps) - 1:
                found += await reader.read(1 << 16)
        found += await reader.read()
        writer.close()
        refusing.stop()
        for sock in sockets:
            sock.close()
        return found

    return asyncio.run(asyncio.wait_for(test(), 60))


def performatives(data: bytes) -> list[object]:
    reader = FrameReader()
    reader.feed(data)
    found: list[object] = []
    while (each := reader.next()) is not None:
        _, _, body, at, end = each
        found.append(decode_performative(body[at:end])[0])
    return found


def test_a_client_of_amqp_091_is_told_who_leads_when_it_opens() -> None:
    start_ok = spec.ConnectionStartOk({}, "PLAIN", b"\0guest\0guest", "en_US")
    opening = method_frame(0, spec.ConnectionTuneOk(1, 131072, 60)) + method_frame(0, spec.ConnectionOpen("/"))
    answer = asked(b"AMQP\x00\x00\x09\x01", method_frame(0, start_ok), opening)
    text = f"this node is a standby; the leader is {LEADER}"
    assert answer.endswith(method_frame(0, spec.ConnectionClose(320, text, 0, 0)))


def start_ok(reads: FieldValue) -> bytes:
    return method_frame(0, spec.ConnectionStartOk({PROPERTY: reads}, "PLAIN", b"\0guest\0guest", "en_US"))


@pytest.mark.parametrize("kind", [PLAN, TASK])
def test_a_client_that_only_reads_is_handed_on_with_all_that_it_has_sent(kind: str) -> None:
    found = asked(b"AMQP\x00\x00\x09\x01", start_ok(kind) + b"more", reading=FakeReading())
    assert found.endswith(f"{kind} 1 ".encode() + b"AMQP\x00\x00\x09\x01" + start_ok(kind) + b"more")


def test_a_client_that_cannot_read_is_told_why() -> None:
    found = asked(b"AMQP\x00\x00\x09\x01", start_ok(PLAN), reading=FakeReading("not now"))
    assert found.endswith(method_frame(0, spec.ConnectionClose(320, "not now", 0, 0)))


@pytest.mark.parametrize("reads", ["", "all", 1, b"plan", None, {"plan": True}])
@pytest.mark.parametrize("reading", [None, FakeReading()])
def test_other_clients_are_told_who_leads(reads: FieldValue, reading: ReadingCopies | None) -> None:
    opening = method_frame(0, spec.ConnectionTuneOk(1, 131072, 60)) + method_frame(0, spec.ConnectionOpen("/"))
    answer = asked(b"AMQP\x00\x00\x09\x01", start_ok(reads), opening, reading=reading)
    assert LEADER.encode() in answer


def test_a_node_that_serves_no_reads_tells_their_clients_who_leads() -> None:
    opening = method_frame(0, spec.ConnectionTuneOk(1, 131072, 60)) + method_frame(0, spec.ConnectionOpen("/"))
    assert LEADER.encode() in asked(b"AMQP\x00\x00\x09\x01", start_ok(PLAN), opening)


def test_a_client_of_amqp_010_is_told_who_leads() -> None:
    answer = asked(b"AMQP\x01\x01\x00\x0a")
    assert answer.startswith(b"AMQP\x01\x01\x00\x0a")
    assert LEADER.encode() in answer


@pytest.mark.parametrize("login", [True, False])
def test_a_client_of_amqp_10_is_redirected(login: bool) -> None:
    steps = [PROTOCOL_HEADER]
    if login:
        init = frame(0, encode_performative(SaslInit("PLAIN", b"\0guest\0guest")), type=SASL)
        steps = [SASL_HEADER, init + PROTOCOL_HEADER]
    opened, closed = performatives(asked(*steps).partition(PROTOCOL_HEADER)[2])
    assert isinstance(opened, Open)
    assert isinstance(closed, Close)
    assert closed.error is not None
    assert closed.error.condition == "amqp:connection:redirect"
    assert closed.error.info == {"network-host": "leader.example", "port": 5673}


def test_without_a_leader_a_client_of_amqp_10_is_only_disconnected() -> None:
    _, closed = performatives(asked(PROTOCOL_HEADER, leader="").partition(PROTOCOL_HEADER)[2])
    assert isinstance(closed, Close)
    assert closed.error is not None
    assert closed.error.condition == "amqp:connection:forced"


@pytest.mark.parametrize("leader", ["amqp://leader.example:port", "amqp://[::1", "leader"])
def test_a_leader_that_names_no_address_does_not_keep_a_client_of_amqp_10_from_its_answer(leader: str) -> None:
    _, closed = performatives(asked(PROTOCOL_HEADER, leader=leader).partition(PROTOCOL_HEADER)[2])
    assert isinstance(closed, Close)
    assert closed.error is not None
    assert closed.error.condition == "amqp:connection:forced"
    assert closed.error.description == f"this node is a standby; the leader is {leader}"


def test_a_client_of_amqp_010_is_told_as_much_of_a_long_address_as_it_can_be() -> None:
    answer = asked(b"AMQP\x01\x01\x00\x0a", leader=f"amqp://{'a' * 1000}")
    assert b"this node is a standby; the leader is amqp://aaa" in answer


def test_an_unknown_protocol_gets_a_header() -> None:
    assert asked(b"GET / HT") == b"AMQP\x00\x00\x09\x01"


def test_the_text_says_if_no_node_leads() -> None:
    assert refusal_text("") == "this node is a standby, and knows of no leader"
