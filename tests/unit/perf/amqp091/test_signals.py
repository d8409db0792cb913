"""Frames that are not part of the load: some block the run, some end it, the others are ignored."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from escrowmq.perf.amqp091 import frames
from escrowmq.perf.amqp091.signals import take_signal
from escrowmq.perf.errors import PerfError
from escrowmq.perf.peer import Peer
from escrowmq.perf.totals import Totals


class Silent(Peer):
    """A peer that sends and reads nothing by itself."""

    def parse(self, data: bytearray, end: int) -> int:
        return end

    def pump(self, now: int) -> None:
        """Do nothing: there is nothing to send."""


@pytest.fixture
def peer() -> Iterator[Silent]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Silent(ours, Totals(), "consumer 0")


def take(peer: Silent, method: int, arguments: bytes = b"") -> None:
    take_signal(peer, frames.METHOD, memoryview(method.to_bytes(4, "big") + arguments))


def test_a_blocked_connection_knows_the_reason_until_it_is_unblocked(peer: Silent) -> None:
    take(peer, frames.CONNECTION_BLOCKED, frames.shortstr("low on disk"))
    reasons = [peer.blocked]
    take(peer, frames.CONNECTION_UNBLOCKED)
    assert [*reasons, peer.blocked] == ["low on disk", None]


def test_returned_messages_are_counted(peer: Silent) -> None:
    take(peer, frames.BASIC_RETURN, bytes(5))
    assert peer.totals.returned == 1


def test_a_cancelled_consumer_ends_the_run(peer: Silent) -> None:
    with pytest.raises(PerfError, match=r"cancelled the consumer \(consumer 0\)"):
        take(peer, frames.BASIC_CANCEL)


def test_a_closed_channel_ends_the_run(peer: Silent) -> None:
    with pytest.raises(PerfError, match="closed the channel: 404 gone"):
        take(peer, frames.CHANNEL_CLOSE, b"\x01\x94" + frames.shortstr("gone") + bytes(4))


def test_heartbeats_are_ignored(peer: Silent) -> None:
    take_signal(peer, frames.HEARTBEAT, memoryview(b""))
    assert peer.blocked is None
