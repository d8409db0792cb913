"""Listening sockets."""

from __future__ import annotations

import socket

import pytest

from escrowmq.config import ListenSection
from escrowmq.server.listener import bind, bind_all, is_loopback, port_of, shown


def test_a_free_port_is_picked_and_clients_get_through() -> None:
    (sock,) = bind("127.0.0.1", 0)
    sock.listen()
    with sock, socket.create_connection(("127.0.0.1", port_of(sock)), timeout=5) as client:
        assert client.getpeername()[1] == port_of(sock) > 0


def test_all_addresses_of_a_name_share_one_port() -> None:
    sockets = bind("localhost", 0)
    assert len({port_of(sock) for sock in sockets}) == 1
    for sock in sockets:
        sock.close()


def test_accepted_sockets_send_at_once_and_notice_dead_peers() -> None:
    (sock,) = bind("127.0.0.1", 0)
    sock.listen()
    with sock, socket.create_connection(("127.0.0.1", port_of(sock)), timeout=5):
        sock.setblocking(True)
        accepted, _ = sock.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


def test_a_port_in_use_is_named() -> None:
    (sock,) = bind("127.0.0.1", 0)
    sock.listen()
    with (
        sock,
        pytest.raises(OSError, match=rf"cannot listen on 127\.0\.0\.1:{port_of(sock)}: Address already in use; "),
    ):
        bind("127.0.0.1", port_of(sock))


def test_no_connection_is_accepted_before_the_broker_listens() -> None:
    (sock,) = bind("127.0.0.1", 0)
    with sock, pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port_of(sock)), timeout=5)


def test_the_address_for_tls_comes_second_and_leaves_nothing_open_when_it_is_refused() -> None:
    section = ListenSection.model_validate({"address": "127.0.0.1:0", "tls_address": "127.0.0.1:0"})
    bound = bind_all(section)
    assert [each.scheme for each in bound] == ["amqp", "amqps"]
    assert [each.url for each in bound] == [f"{b.scheme}://127.0.0.1:{port_of(b.sockets[0])}" for b in bound]
    for each in bound:
        each.close()
    bad = ListenSection.model_validate({"address": "127.0.0.1:0", "tls_address": "no-such-host.invalid:1"})
    with pytest.raises(OSError, match=r"no-such-host\.invalid:1: .*choose an address of this machine"):
        bind_all(bad)


def test_a_host_that_is_none_is_named() -> None:
    with pytest.raises(OSError, match=r"cannot listen on no-such-host\.invalid:5672: "):
        bind("no-such-host.invalid", 5672)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("fe80::1%eth0", False),
        ("?", False),
    ],
)
def test_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_ipv6_stands_in_brackets() -> None:
    assert shown("::1", 5) == "[::1]:5"
    assert shown("h", 5) == "h:5"
