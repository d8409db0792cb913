"""The transport sends and receives over a real pair of sockets."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from escrowmq.client.errors import ConnectionClosed, Timeout
from escrowmq.client.transport import Transport
from escrowmq.wire.amqp091.frames import HEARTBEAT
from tests.broker import wait_until


class Pair:
    """A transport, the data it has received, and the peer's socket."""

    def __init__(self) -> None:
        mine, self.other = socket.socketpair()
        mine.setblocking(False)
        self.received = b""
        self.transport = Transport(mine, self.take, "peer")

    def take(self, data: bytes) -> None:
        self.received += data

    def close(self) -> None:
        self.transport.close()
        self.other.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.close()


def read(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        data += sock.recv(count - len(data))
    return data


def readable(sock: socket.socket) -> bool:
    return bool(select.select([sock], [], [], 0)[0])


def test_data_is_sent_and_received(pair: Pair) -> None:
    pair.transport.send(b"hello", 1)
    assert read(pair.other, 5) == b"hello"
    pair.other.sendall(b"answer")
    assert pair.transport.turn(1)
    assert pair.received == b"answer"
    assert not pair.transport.turn(0)
    pair.transport.poll()
    pair.other.sendall(b"!")
    pair.transport.poll()
    assert pair.received == b"answer!"


def test_data_is_read_while_other_data_is_written(pair: Pair) -> None:
    size = 8 << 20

    def peer() -> None:
        pair.other.sendall(bytes(size))  # blocks until the transport reads
        read(pair.other, size)

    thread = threading.Thread(target=peer)
    thread.start()
    pair.transport.send(bytes(size), 20)
    while len(pair.received) < size:
        assert pair.transport.turn(20)
    thread.join()
    assert not pair.transport.writing


def test_queued_data_is_sent_first_and_in_order(pair: Pair) -> None:
    pair.transport.queue(b"1")
    pair.transport.queue(b"")
    pair.transport.queue(b"2")
    assert pair.transport.writing
    pair.transport.send(b"3", 1)
    assert read(pair.other, 3) == b"123"


def test_a_peer_that_does_not_read_causes_a_timeout(pair: Pair) -> None:
    with pytest.raises(Timeout, match=r"accepted no data for 0\.05 s"):
        pair.transport.send(bytes(32 << 20), 0.05)


def test_the_end_of_the_stream_is_an_error(pair: Pair) -> None:
    pair.other.sendall(b"last words")
    pair.other.close()
    assert pair.transport.turn(1)
    assert pair.received == b"last words"
    with pytest.raises(ConnectionClosed, match="without a reason"):
        pair.transport.turn(1)


def test_the_peers_last_data_is_read_when_writing_fails(pair: Pair) -> None:
    pair.other.sendall(b"why")
    pair.other.close()
    with pytest.raises(ConnectionClosed):
        pair.transport.send(bytes(8 << 20), 1)
    assert pair.received == b"why"


def test_heartbeats_are_sent_while_waiting(pair: Pair) -> None:
    pair.transport.set_heartbeat(2)
    start = time.monotonic()
    assert not pair.transport.turn(1.9)
    assert time.monotonic() - start >= 1.9
    # If the machine pauses when a heartbeat is due, the next wait sends it.
    wait_until(lambda: readable(pair.other) or pair.transport.turn(0.1))
    assert read(pair.other, len(HEARTBEAT)) == HEARTBEAT


def test_heartbeats_are_sent_while_only_the_peer_sends(pair: Pair) -> None:
    pair.transport.set_heartbeat(1)

    def exchange() -> bool:
        pair.other.sendall(b".")
        assert pair.transport.turn(30)
        return readable(pair.other)

    wait_until(exchange)
    assert read(pair.other, len(HEARTBEAT)) == HEARTBEAT


def test_a_silent_peer_is_given_up_but_not_because_of_unread_heartbeats(pair: Pair) -> None:
    pair.transport.set_heartbeat(1)
    pair.other.sendall(HEARTBEAT)
    pair.transport._received_at -= 100
    assert pair.transport.turn(1)
    pair.transport._received_at -= 100
    with pytest.raises(ConnectionClosed, match="not even a heartbeat"):
        pair.transport.turn(5)


def test_the_thread_sends_heartbeats(pair: Pair) -> None:
    pair.transport.set_heartbeat(1)
    pair.transport.start_thread()
    pair.other.settimeout(30)
    assert read(pair.other, 2 * len(HEARTBEAT)) == 2 * HEARTBEAT


def test_a_turn_can_be_woken_from_another_thread(pair: Pair) -> None:
    thread = threading.Thread(target=pair.transport.wake)
    thread.start()
    assert pair.transport.turn(20)
    thread.join()
    assert not pair.transport.turn(0)
