"""Logging in: what a broker may answer instead."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from escrowmq.perf.amqp010 import frames
from escrowmq.perf.amqp010.connection import SessionConnection
from escrowmq.perf.errors import PerfError, RefusedLogin
from escrowmq.perf.url import parse_url
from escrowmq.wire.amqp010.codec.frames import PROTOCOL_HEADER
from escrowmq.wire.amqp010.codec.spec import (
    ConnectionClose,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionTune,
    ExecutionException,
    SessionAttached,
    SessionDetached,
)
from escrowmq.wire.amqp010.codec.structs import Command, Control

Serve = Callable[[Callable[[socket.socket], None]], str]
START = frames.control(0, ConnectionStart({"product": "test", "version": "1.2"}))
TUNED = frames.control(0, ConnectionTune(10, 4096, 0, 60)) + frames.control(0, ConnectionOpenOk())


def answering(*answers: bytes) -> Callable[[socket.socket], None]:
    """Return a server that sends an answer for each thing it reads, and then reads to the end."""

    def handler(connection: socket.socket) -> None:
        for answer in answers:
            connection.recv(65536)
            connection.sendall(answer)
        while connection.recv(65536):
            pass

    return handler


def test_the_limits_of_the_broker_are_kept(serve: Serve) -> None:
    connection = SessionConnection(parse_url(serve(answering(PROTOCOL_HEADER + START, TUNED))), 5)
    assert (connection.product, connection.version) == ("test", "1.2")
    assert (connection.frame_max, connection.channel_max) == (4096, 10)
    with pytest.raises(PerfError, match="no channel above 10"):
        connection.attach(11)
    connection.socket.close()


def test_another_protocol_is_named(serve: Serve) -> None:
    with pytest.raises(PerfError, match="does not speak AMQP 0-10"):
        SessionConnection(parse_url(serve(answering(b"AMQP\x00\x00\x09\x01"))), 5)


def test_a_refused_login_is_told_from_other_faults(serve: Serve) -> None:
    closed = frames.control(0, ConnectionClose(320, "no such user"))
    with pytest.raises(RefusedLogin, match="320 no such user"):
        SessionConnection(parse_url(serve(answering(PROTOCOL_HEADER + START, closed))), 5)


@pytest.mark.parametrize(
    ("ending", "text"),
    [
        (ExecutionException(404, description="no queue"), "ended the session: 404 no queue"),
        (SessionDetached(b"x", 3), "detached the session, with code 3"),
        (ConnectionClose(501, "framing"), "closed the connection: 501 framing"),
    ],
)
def test_the_reason_of_a_broker_that_ends_the_session_is_shown(
    serve: Serve, ending: Control | Command, text: str
) -> None:
    data = frames.command(1, ending) if isinstance(ending, Command) else frames.control(1, ending)
    handler = answering(PROTOCOL_HEADER + START, TUNED, frames.control(1, SessionAttached(b"x")), data)
    connection = SessionConnection(parse_url(serve(handler)), 5)
    connection.attach(1)
    with pytest.raises(PerfError, match=text):
        connection.call(1, ExecutionException())
    connection.socket.close()
