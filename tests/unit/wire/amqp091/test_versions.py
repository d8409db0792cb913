"""Clients of AMQP 0-9 and 0-8 at the endpoint of AMQP 0-9-1."""

from __future__ import annotations

import pytest

from escrowmq.wire.amqp091 import spec
from escrowmq.wire.amqp091.connection import Connection
from escrowmq.wire.amqp091.frames import FRAME_HEADER, frame, method_frame
from escrowmq.wire.amqp091.handshake import State
from escrowmq.wire.amqp091.versions import ACCESS_REQUEST, ACCESS_REQUEST_OK, VERSIONS, from_older, to_older
from tests.harness.server import Port
from tests.unit.wire.amqp091.clients import Server, server

OLDER = [b"AMQP\x01\x01\x08\x00", b"AMQP\x01\x01\x09\x01"]
START_OK = spec.ConnectionStartOk({}, "PLAIN", b"\0guest\0guest", "en_US")


def payloads(made: Server, port: Port[Connection], data: bytes) -> list[tuple[int, bytes]]:
    """Send bytes; return channel and payload of each frame of the answer."""
    made.receive(port, data)
    made.end_turn()
    made.run_disk()
    answer, port.sent = bytes(port.sent), bytearray()
    found, at = [], 0
    while at < len(answer):
        _, channel, size = FRAME_HEADER.unpack_from(answer, at)
        found.append((channel, answer[at + 7 : at + 7 + size]))
        at += size + 8
    return found


def opened(header: bytes) -> tuple[Server, Port[Connection]]:
    made = server()
    port = made.open(Connection)
    for octets in (
        header,
        method_frame(0, START_OK),
        method_frame(0, spec.ConnectionTuneOk(0, 0, 0)),
        method_frame(0, spec.ConnectionOpen("/")),
    ):
        payloads(made, port, octets)
    assert port.endpoint.state is State.RUNNING
    return made, port


@pytest.mark.parametrize(("header", "version"), [(header, version) for header, version in VERSIONS.items()])
def test_the_start_names_the_version_of_the_header(header: bytes, version: tuple[int, int, bool]) -> None:
    made = server()
    port = made.open(Connection)
    for at in range(len(header) - 1):
        assert not payloads(made, port, header[at : at + 1])
    ((_, payload),) = payloads(made, port, header[-1:])
    start = spec.ConnectionStart.decode(payload)
    assert (start.version_major, start.version_minor) == version[:2]


def test_a_client_of_0_9_is_one_of_0_9_1() -> None:
    made, port = opened(b"AMQP\x01\x01\x00\x09")
    ((_, payload),) = payloads(made, port, method_frame(1, spec.ChannelOpen()))
    assert payload == spec.ChannelOpenOk().encode()


@pytest.mark.parametrize("header", OLDER)
def test_a_client_of_0_8_declares_consumes_and_closes(header: bytes) -> None:
    made, port = opened(header)
    assert payloads(made, port, method_frame(1, spec.ChannelOpen())) == [(1, b"\x00\x14\x00\x0b")]
    request = frame(1, 1, ACCESS_REQUEST + b"\x01/\x1f")
    assert payloads(made, port, request) == [(1, ACCESS_REQUEST_OK)]
    ((_, declared),) = payloads(made, port, method_frame(1, spec.QueueDeclare("q")))
    assert spec.QueueDeclareOk.decode(declared).queue == "q"
    consume = spec.BasicConsume("q", "tag").encode()[:-4]
    ((_, consumed),) = payloads(made, port, frame(1, 1, consume))
    assert spec.BasicConsumeOk.decode(consumed).consumer_tag == "tag"
    close = b"\x00\x0a\x00\x3c" + spec.ConnectionClose(200, "bye", 0, 0).encode()[4:]
    assert payloads(made, port, frame(1, 0, close)) == [(0, b"\x00\x0a\x00\x3d")]


def test_a_close_by_the_broker_has_the_number_of_0_8() -> None:
    made, port = opened(OLDER[0])
    port.endpoint.shut("the broker stops")
    ((_, close),) = payloads(made, port, b"")
    assert close.startswith(b"\x00\x0a\x00\x3c")
    payloads(made, port, frame(1, 0, b"\x00\x0a\x00\x3d"))
    assert port.closed


def test_other_methods_are_the_same() -> None:
    method = spec.QueueDeclareOk("q", 1, 2)
    assert to_older(method) == method.encode()
    assert from_older(method.encode()) == method.encode()
