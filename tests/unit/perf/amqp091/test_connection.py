"""Opening a connection: each error is reported in one line."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from escrowmq.perf.amqp091 import frames
from escrowmq.perf.amqp091.connection import Connection
from escrowmq.perf.errors import PerfError
from escrowmq.perf.url import parse_url
from tests.unit.perf.conftest import OPEN_OK, START, TUNE, Serve, close


def connect(url: str, timeout: float = 5.0) -> Connection:
    return Connection(parse_url(url), "test", timeout)


def failure(url: str, timeout: float = 5.0) -> str:
    with pytest.raises(PerfError) as caught:
        connect(url, timeout)
    message = str(caught.value)
    assert "\n" not in message
    return message


def greet(connection: socket.socket) -> None:
    connection.recv(8)
    connection.sendall(START)
    connection.recv(4096)


def test_the_identity_of_the_broker_is_read(serve: Serve) -> None:
    def handler(connection: socket.socket) -> None:
        greet(connection)
        connection.sendall(TUNE + OPEN_OK)
        connection.recv(4096)

    opened = connect(serve(handler))
    assert (opened.product, opened.version, opened.channel_max, opened.frame_max) == ("test", "1.2", 2047, 131072)
    opened.close()


def test_a_port_without_a_listener_is_an_error(tmp_path: Path) -> None:
    with (
        socket.socket() as unused
    ):  # bound and not listening: connections are refused, and no other process can take the port
        unused.bind(("127.0.0.1", 0))
        assert "Connection refused" in failure(f"amqp://127.0.0.1:{unused.getsockname()[1]}")


def test_an_unknown_host_is_an_error() -> None:
    assert failure("amqp://nowhere.invalid").startswith("cannot connect to the broker at nowhere.invalid:5672: ")


def test_another_version_of_amqp_is_an_error(serve: Serve) -> None:
    message = failure(serve(lambda connection: connection.sendall(b"AMQP\x01\x01\x00\x0a")))
    assert "does not speak AMQP 0-9-1" in message


def test_another_protocol_is_an_error(serve: Serve) -> None:
    def handler(connection: socket.socket) -> None:
        connection.recv(8)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        connection.recv(1)

    assert "does not speak AMQP 0-9-1" in failure(serve(handler))


def test_a_refusal_is_reported_with_its_reason(serve: Serve) -> None:
    def handler(connection: socket.socket) -> None:
        greet(connection)
        connection.sendall(close(frames.CONNECTION_CLOSE, 0, 403, "ACCESS_REFUSED - Login was refused"))
        connection.recv(1)

    url = serve(handler)
    address = url.rpartition("@")[2].removeprefix("amqp://").rstrip("/")
    assert failure(url) == (
        f"the broker at {address} refused the login of user 'guest' (403 ACCESS_REFUSED): check the user and the "
        "password in --url; the broker's log has the reason"
    )


def test_a_refusal_without_a_reason_is_reported(serve: Serve) -> None:
    assert "without giving a reason" in failure(serve(greet))


def test_a_silent_server_is_an_error(serve: Serve) -> None:
    def handler(connection: socket.socket) -> None:
        while connection.recv(100):
            pass

    assert "did not answer within 0.1 s" in failure(serve(handler), timeout=0.1)
