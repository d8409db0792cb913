"""Clients that abuse HTTP/2 are refused or bounded, and others are served meanwhile."""

from __future__ import annotations

import contextlib
import itertools
import select
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from escrowmq.wire.http2.frames import HEAD_SIZE, PREFACE, ErrorCode, FrameType, Setting, frame, reset, settings
from escrowmq.wire.http2.headers import encode
from escrowmq.wire.rocketmq.grpc.framing import prefixed
from escrowmq.wire.rocketmq.proto.service_pb2 import HeartbeatRequest
from tests.broker import BrokerProcess
from tests.interop.rocketmq.brokers import RocketmqPorts

SECONDS = 20.0
GROWTH_BYTES = 48 << 20
HEADERS = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/apache.rocketmq.v2.MessagingService/Heartbeat"),
    (b":authority", b"x"),
    (b"content-type", b"application/grpc"),
    (b"te", b"trailers"),
    (b"x-mq-client-id", b"c"),
]
BLOCK = encode(HEADERS)
BODY = prefixed(HeartbeatRequest().SerializeToString())
WHOLE, OPEN = 5, 4
REFUSED = ErrorCode.ENHANCE_YOUR_CALM


def call(number: int) -> bytes:
    return frame(FrameType.HEADERS, OPEN, number, BLOCK) + frame(FrameType.DATA, 1, number, BODY)


def numbers() -> Iterator[int]:
    return itertools.count(1, 2)


def rapid_resets() -> Iterator[bytes]:
    for number in numbers():
        yield frame(FrameType.HEADERS, OPEN, number, BLOCK) + reset(number, ErrorCode.CANCEL)


def resets_by_faults() -> Iterator[bytes]:
    """Let the broker reset the streams: each is opened, and then updated by a window of 0."""
    for number in numbers():
        yield frame(FrameType.HEADERS, OPEN, number, BLOCK) + frame(FrameType.WINDOW_UPDATE, 0, number, bytes(4))


def many_pings() -> Iterator[bytes]:
    return itertools.repeat(100 * frame(FrameType.PING, 0, 0, bytes(8)))


def many_settings() -> Iterator[bytes]:
    return itertools.repeat(100 * settings({Setting.INITIAL_WINDOW_SIZE: 1000}))


def many_windows() -> Iterator[bytes]:
    return itertools.repeat(100 * frame(FrameType.WINDOW_UPDATE, 0, 0, b"\x00\x00\x00\x01"))


def endless_continuation() -> Iterator[bytes]:
    yield frame(FrameType.HEADERS, 0, 1, BLOCK)
    yield from itertools.repeat(frame(FrameType.CONTINUATION, 0, 1, encode([(b"a", b"b" * 4000)])))


def empty_continuations() -> Iterator[bytes]:
    yield frame(FrameType.HEADERS, 0, 1, BLOCK)
    yield from itertools.repeat(100 * frame(FrameType.CONTINUATION, 0, 1, b""))


def header_bomb() -> Iterator[bytes]:
    """Put one large header into the table, and name it thousands of times by one octet each."""
    yield frame(FrameType.HEADERS, OPEN, 1, BLOCK + b"\x40\x01a" + b"\x7f\xa1\x1e" + b"v" * 4000)
    yield frame(FrameType.HEADERS, OPEN, 3, BLOCK + b"\xbe" * 12_000)


def unread_answers() -> Iterator[bytes]:
    """Let no answer through: the client's windows are shut, and it goes on calling."""
    yield settings({Setting.INITIAL_WINDOW_SIZE: 0})
    for number in numbers():
        yield call(number)


ATTACKS: list[Callable[[], Iterator[bytes]]] = [
    rapid_resets,
    resets_by_faults,
    many_pings,
    many_settings,
    many_windows,
    endless_continuation,
    empty_continuations,
    header_bomb,
]


class Peer:
    """A connection whose frames are made by hand."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
        self.socket.sendall(PREFACE + settings({}))
        self.unread = b""

    def frames(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield type, stream and payload of the frames that arrive."""
        while True:
            while len(self.unread) < HEAD_SIZE or len(self.unread) < HEAD_SIZE + int.from_bytes(self.unread[:3], "big"):
                with contextlib.suppress(ConnectionResetError):
                    if data := self.socket.recv(1 << 16):
                        self.unread += data
                        continue
                return
            end = HEAD_SIZE + int.from_bytes(self.unread[:3], "big")
            found, self.unread = self.unread[:end], self.unread[end:]
            yield found[3], int.from_bytes(found[5:9], "big"), found[HEAD_SIZE:]

    def is_told_to_go(self) -> bool:
        """Return whether GOAWAY is among what has arrived."""
        if select.select([self.socket], [], [], 0)[0]:
            self.unread += self.socket.recv(1 << 16)
        at = 0
        while at + HEAD_SIZE <= len(self.unread):
            if self.unread[at + 3] == FrameType.GOAWAY:
                return True
            at += HEAD_SIZE + int.from_bytes(self.unread[at : at + 3], "big")
        return False

    def answer(self, number: int) -> float:
        """Make a call, and return the seconds until its answer is complete."""
        begin = time.monotonic()
        self.socket.sendall(call(number))
        for kind, stream, _ in self.frames():
            if kind == FrameType.DATA and stream == number:
                return time.monotonic() - begin
        raise AssertionError("the connection was closed")


def sent_until_refused(port: int, attack: Iterator[bytes]) -> ErrorCode | None:
    """Attack until the broker closes the connection. Return the code of its GOAWAY, if the client still gets it."""
    peer, end = Peer(port), time.monotonic() + SECONDS
    with peer.socket:
        try:
            for data in attack:
                assert time.monotonic() < end, "the attack was not refused"
                peer.socket.sendall(data)
                if peer.is_told_to_go():
                    break
        except OSError:  # the broker has closed the connection while we were sending
            pass
        for kind, _, payload in peer.frames():
            if kind == FrameType.GOAWAY:
                return ErrorCode(int.from_bytes(payload[4:8], "big"))
    return None


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, int]]:
    ports = RocketmqPorts()
    with ports.broker(tmp_path_factory.mktemp("abused")) as broker:
        yield broker, ports.grpc


def resident_bytes(broker: BrokerProcess) -> int:
    pages = int(Path(f"/proc/{broker.pid}/statm").read_text().split()[1])
    return pages * 4096


@pytest.mark.rule("FAIR-3")
@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_refused_and_other_clients_are_served(
    served: tuple[BrokerProcess, int], attack: Callable[[], Iterator[bytes]]
) -> None:
    broker, port = served
    before = resident_bytes(broker)
    other = Peer(port)
    with other.socket:
        other.answer(1)
        assert sent_until_refused(port, attack()) in {REFUSED, None}
        assert other.answer(3) < SECONDS / 2
    assert resident_bytes(broker) - before < GROWTH_BYTES


@pytest.mark.rule("FAIR-3")
def test_answers_that_a_client_does_not_let_through_are_bounded(served: tuple[BrokerProcess, int]) -> None:
    _, port = served
    stalled, other = Peer(port), Peer(port)
    with stalled.socket, other.socket:
        refused = 0
        for data in itertools.islice(unread_answers(), 600):
            stalled.socket.sendall(data)
        for kind, stream, payload in stalled.frames():
            refused += kind == FrameType.RST_STREAM and int.from_bytes(payload, "big") == ErrorCode.REFUSED_STREAM
            if stream == 2 * 598 + 1:  # of the last call but one
                break
        assert refused > 0, "calls beyond the limit of streams are refused"
        assert other.answer(1) < SECONDS / 2


@pytest.mark.rule("FAIR-3")
def test_a_client_that_reads_nothing_delays_no_other(served: tuple[BrokerProcess, int]) -> None:
    broker, port = served
    before = resident_bytes(broker)
    stalled, other = Peer(port), Peer(port)
    with stalled.socket, other.socket:
        stalled.socket.settimeout(0.5)
        with contextlib.suppress(TimeoutError, OSError):
            for number in itertools.islice(numbers(), 8_000):
                stalled.socket.sendall(call(number))
        assert other.answer(1) < SECONDS / 2
    assert resident_bytes(broker) - before < GROWTH_BYTES
