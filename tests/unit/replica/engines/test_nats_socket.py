"""A connection to NATS: its login, its signs of life and its end; `tests/engines` has the tests on servers."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from escrowmq.replica.engines import nats_socket
from escrowmq.replica.engines.address import EngineAddress
from escrowmq.replica.engines.nats_socket import NatsSocket
from escrowmq.replica.engines.nats_wire import NatsMessage, publish
from tests.broker import wait_until
from tests.certificates import Authority
from tests.unit.replica.engines.nats_server import NatsServer

ADDRESS = EngineAddress.parse("nats://user:secret@127.0.0.1:1/t")


def opened(server: NatsServer, address: EngineAddress = ADDRESS) -> NatsSocket:
    return NatsSocket(address, server.host, "in.*")


def receive_always(sock: NatsSocket) -> None:
    while True:
        assert sock.receive() == []


def test_the_login_of_the_address_is_sent() -> None:
    with NatsServer() as server:
        sock = opened(server)
        line = server.received.partition(b"\r\n")[0]
        options = json.loads(line.removeprefix(b"CONNECT "))
        assert (options["user"], options["pass"], options["no_responders"]) == ("user", "secret", True)
        assert sock.most_bytes == 1 << 20
        sock.close()


def test_a_refused_login_is_an_error_with_the_reason_and_without_the_password() -> None:
    with NatsServer(refusal="Authorization Violation") as server:
        with pytest.raises(ConnectionError, match="Authorization Violation") as raised:
            opened(server)
        assert "secret" not in str(raised.value)


def test_a_server_that_wants_tls_is_not_told_the_password() -> None:
    with NatsServer(tls_required=True) as server:
        with pytest.raises(ConnectionError, match=r"must begin with nats\+tls://"):
            opened(server)
        assert not server.received


@contextmanager
def greeting_with(data: bytes) -> Iterator[str]:
    """A server that says nothing else, to one client. Yields its host."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        peer, _ = listener.accept()
        with peer, suppress(OSError):
            peer.sendall(data)
            peer.shutdown(socket.SHUT_WR)
            while peer.recv(1 << 16):
                pass

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        thread.join()
        listener.close()


@pytest.mark.parametrize(
    "greeting",
    [
        b"HTTP/1.1 400 Bad Request\r\n",
        b"INFO []\r\n",
        b"INFO {\r\n",
        b"",
        b"INFO " + b"[" * 100_000 + b"\r\n",
        b'INFO {"max_payload":null}\r\nPONG\r\n',
        b'INFO {"max_payload":Infinity}\r\nPONG\r\n',
        b'INFO {"max_payload":"1048576"}\r\nPONG\r\n',
        b'INFO {"nonce":null}\r\nPONG\r\n',
    ],
)
def test_a_server_of_another_kind_is_refused(greeting: bytes) -> None:
    with greeting_with(greeting) as host, pytest.raises(ConnectionError, match=host):
        NatsSocket(ADDRESS, host, "in.*")


def test_an_error_right_behind_the_first_line_is_told() -> None:
    greeting = b"INFO {}\r\n-ERR 'maximum connections exceeded'\r\n"
    with greeting_with(greeting) as host, pytest.raises(ConnectionError, match="maximum connections exceeded"):
        NatsSocket(ADDRESS, host, "in.*")


@pytest.mark.parametrize("host", ["a..b:4222", f"{'x' * 64}:4222", "127.0.0.1:65536", "127.0.0.1"])
def test_a_host_that_cannot_be_is_an_error_with_its_name(host: str) -> None:
    with pytest.raises(ConnectionError, match=host):
        NatsSocket(ADDRESS, host, "in.*")


def test_a_server_that_changes_its_limit_is_believed() -> None:
    with NatsServer() as server:
        sock = opened(server)
        server.say(b'INFO {"max_payload":5}\r\n')
        assert sock.receive() == []
        assert sock.most_bytes == 5
        server.say(b'INFO {"max_payload":[]}\r\n')
        with pytest.raises(ConnectionError, match="unknown types"):
            sock.receive()
        sock.close()


def test_a_server_that_says_nothing_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, pytest.raises(ConnectionError, match="timed out"):
        NatsSocket(ADDRESS, f"127.0.0.1:{listener.getsockname()[1]}", "in.*")


def test_a_port_where_nobody_listens_is_an_error_with_the_host() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host = f"127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(ConnectionError, match=host):
        NatsSocket(ADDRESS, host, "in.*")


def test_a_server_that_asks_for_a_sign_of_life_gets_one() -> None:
    with NatsServer() as server:
        sock = opened(server)
        server.say(b"PING\r\nMSG in.1 1 1\r\nx\r\n")
        assert sock.receive() == [NatsMessage("in.1", "", b"x")]
        wait_until(lambda: server.received.endswith(b"PONG\r\n"), what="the sign of life")
        sock.close()


def test_a_server_that_is_silent_is_asked_and_then_given_up() -> None:
    with NatsServer() as server:
        sock = opened(server)
        with pytest.raises(ConnectionError, match="does not answer"):
            receive_always(sock)
        assert server.received.count(b"PING\r\n") == 4  # one of them belongs to the login
        sock.close()


def test_a_connection_that_is_tended_stays_while_the_server_answers() -> None:
    with NatsServer() as server:
        sock = opened(server)
        for turn in range(8):
            sock.tend()
            wait_until(lambda turn=turn: server.received.count(b"PING\r\n") > turn + 1)  # type: ignore[misc]
            server.say(b"PONG\r\n")
            wait_until(sock._has_bytes, what="the answer")
        server.say(b"-ERR 'Stale Connection'\r\n")
        server.drop()
        with pytest.raises(ConnectionError, match="Stale Connection"):
            receive_always(sock)
        sock.close()


def test_a_server_that_never_stops_talking_does_not_keep_the_thread_that_tends() -> None:
    with NatsServer() as server:
        sock = opened(server)
        stopping = threading.Event()

        def talk() -> None:
            with suppress(OSError):
                while not stopping.is_set():
                    server.say(b"+OK\r\n" * 20_000)

        talking = threading.Thread(target=talk)
        talking.start()
        tending = threading.Thread(target=sock.tend)
        tending.start()
        tending.join(5)
        tends = tending.is_alive()
        stopping.set()
        sock.interrupt()
        tending.join()
        sock.close()
        talking.join()
        assert not tends


def slowly(_: bytes) -> bytes:
    time.sleep(0.1)
    return b""


def test_a_write_ends_although_the_server_takes_a_little_now_and_then() -> None:
    with NatsServer(slowly) as server:
        sock = opened(server)
        began = time.monotonic()
        with pytest.raises(ConnectionError, match="does not take"):
            sock.send(publish("t", [("in.1", bytes(1 << 15))] * 512), 1)
        assert time.monotonic() - began < 3
        sock.close()


def test_a_write_over_tls_that_takes_several_turns_arrives_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nats_socket, "_TURN_SECONDS", 0.1)
    authority = Authority(tmp_path)
    encryption = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    encryption.load_cert_chain(*authority.issue("nats"))
    address = EngineAddress.parse(f"nats+tls://127.0.0.1:1/t?cacertfile={authority.path}")
    data = publish("t", [("in.1", bytes([index]) * (1 << 20)) for index in range(16)])
    with NatsServer(slowly, encryption=encryption) as server:
        sock = opened(server, address)
        sock.send(data, 10)
        wait_until(lambda: server.received.endswith(data), what="all bytes")
        assert sock.receive()
        sock.close()


def test_a_thread_that_waits_can_be_interrupted() -> None:
    with NatsServer() as server:
        sock = opened(server)
        interrupting = threading.Timer(0.2, sock.interrupt)
        interrupting.start()
        with pytest.raises(ConnectionError):
            sock.receive()
        interrupting.join()
        sock.close()
