"""A standby finds out that the leader's process has ended: connections break, and new ones are refused."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from escrowmq.server.replica import presence as module
from escrowmq.server.replica.presence import LeaderPresence
from tests.broker import wait_until
from tests.ports import reserve_port


@pytest.fixture
def presence() -> Iterator[LeaderPresence]:
    found = LeaderPresence()
    found.start()
    yield found
    found.stop()


class Node:
    """A process that listens."""

    def __init__(self) -> None:
        self.port = reserve_port(self)
        self.url = f"amqp://127.0.0.1:{self.port}"
        self.begin()

    def begin(self) -> None:
        """Listen."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._listener.settimeout(30)

    def accept(self) -> socket.socket:
        """Return the next connection."""
        return self._listener.accept()[0]

    def end(self) -> None:
        """Listen no more."""
        self._listener.close()


def test_a_process_that_ended_is_gone(presence: LeaderPresence) -> None:
    node = Node()
    presence.watch(node.url)
    connection = node.accept()
    assert not presence.is_gone
    told = threading.Event()
    presence.on_gone = told.set
    node.end()
    connection.close()
    assert told.wait(30)
    assert presence.is_gone


def test_a_process_that_ends_just_after_a_renewal_is_gone_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SHORT_SECONDS", 30)
    node, presence = Node(), LeaderPresence(renew_seconds=3600)
    presence.start()
    told = threading.Event()
    presence.on_gone = told.set
    presence.watch(node.url)
    connection = node.accept()
    node.end()
    connection.close()
    assert told.wait(15)
    presence.stop()


@pytest.mark.parametrize("other", ["amqp://leader:port", "amqp://[::1", f"amqp://{'a' * 100}.example:5672"])
def test_an_address_that_is_none_does_not_end_the_watch(presence: LeaderPresence, other: str) -> None:
    presence.watch(other)
    time.sleep(0.1)
    node = Node()
    presence.watch(node.url)
    node.accept().close()
    assert not presence.is_gone
    node.end()


def test_a_process_that_only_closes_connections_is_there(presence: LeaderPresence) -> None:
    node = Node()
    presence.watch(node.url)
    node.accept().close()
    with node.accept():
        assert not presence.is_gone
    node.end()


def test_an_address_that_never_answered_is_not_gone(presence: LeaderPresence) -> None:
    node, other = Node(), Node()
    node.end()
    presence.watch(node.url)
    presence.watch(other.url)
    with other.accept():
        assert not presence.is_gone
    other.end()


def test_another_leader_is_watched_afresh(presence: LeaderPresence) -> None:
    node, other = Node(), Node()
    presence.watch(node.url)
    connection = node.accept()
    node.end()
    connection.close()
    wait_until(lambda: presence.is_gone)
    presence.watch(other.url)
    assert not presence.is_gone
    with other.accept():
        presence.watch("")
        assert not presence.is_gone
    other.end()


@pytest.mark.parametrize("between", [True, False])
def test_a_leader_that_is_back_at_its_address_is_not_gone(presence: LeaderPresence, between: bool) -> None:
    node, other = Node(), Node()
    presence.watch(node.url, 1)
    connection = node.accept()
    node.end()
    connection.close()
    wait_until(lambda: presence.is_gone, 30, "the end of the process")
    node.begin()
    if between:
        presence.watch(other.url, 2)
        other.accept().close()
    presence.watch(node.url, 3)
    assert not presence.is_gone
    connection = node.accept()
    assert not presence.is_gone
    node.end()
    connection.close()
    wait_until(lambda: presence.is_gone, 30, "the end of the process")
    other.end()


def test_a_connection_is_renewed_before_the_leader_warns_of_it() -> None:
    node, presence = Node(), LeaderPresence(renew_seconds=0.05)
    presence.start()
    presence.watch(node.url)
    with node.accept() as first, node.accept():
        first.settimeout(30)
        assert first.recv(1) == b""  # the standby has closed it
        assert not presence.is_gone
    presence.stop()
    node.end()


def test_a_text_that_is_no_address_is_not_gone(presence: LeaderPresence) -> None:
    node = Node()
    presence.watch("nonsense")
    presence.watch(node.url)
    with node.accept():
        assert not presence.is_gone
    node.end()
