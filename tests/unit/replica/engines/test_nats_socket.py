"""A connection to NATS: its login, its signs of life and its end; `tests/engines` has the tests on servers."""

from __future__ import annotations

import json
import socket
import threading

import pytest

from escrowmq.replica.engines.address import EngineAddress
from escrowmq.replica.engines.nats_socket import NatsSocket
from escrowmq.replica.engines.nats_wire import Message
from tests.broker import wait_until
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


@pytest.mark.parametrize("greeting", [b"HTTP/1.1 400 Bad Request\r\n", b"INFO []\r\n", b"INFO {\r\n", b""])
def test_a_server_of_another_kind_is_refused(greeting: bytes) -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        peer, _ = listener.accept()
        with peer:
            peer.sendall(greeting)
            peer.shutdown(socket.SHUT_WR)
            peer.recv(1)

    thread = threading.Thread(target=serve)
    thread.start()
    with pytest.raises(ConnectionError):
        NatsSocket(ADDRESS, f"127.0.0.1:{listener.getsockname()[1]}", "in.*")
    thread.join()
    listener.close()


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
        assert sock.receive() == [Message("in.1", "", b"x")]
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


def test_a_thread_that_waits_can_be_interrupted() -> None:
    with NatsServer() as server:
        sock = opened(server)
        interrupting = threading.Timer(0.2, sock.interrupt)
        interrupting.start()
        with pytest.raises(ConnectionError):
            sock.receive()
        interrupting.join()
        sock.close()
