"""A server that speaks just enough AMQP to accept load, and does nothing else, to measure the load tool's own cost.

It counts publishes and discards them. To a consumer it sends deliveries that were encoded beforehand, as fast as the
consumer reads them. `python bench/nullsink.py` measures both, with uniform and with varied messages.
"""

from __future__ import annotations

import json
import multiprocessing
import socket
import subprocess
import sys
import threading
from struct import pack, unpack_from

from escrowmq.perf.amqp091 import frames
from escrowmq.perf.amqp091.content import body_frames, properties
from escrowmq.perf.amqp091.counting import CONSUMER_TAG
from escrowmq.perf.messages import Variety, messages

_DELIVERIES_A_WRITE = 500
_PUBLISH = frames.BASIC_PUBLISH.to_bytes(4, "big") + bytes(2)
"""Every publish contains these bytes; its body almost never does."""
_VARIED = Variety(spread=40, message_ids=True, correlation_ids=True, timestamps=True, headers=True)
_ANSWERS = {
    frames.CONNECTION_TUNE_OK: b"",
    frames.CONNECTION_OPEN: frames.method(0, frames.CONNECTION_OPEN_OK, b"\0"),
    frames.CHANNEL_OPEN: frames.method(1, frames.CHANNEL_OPEN_OK, bytes(4)),
    frames.QUEUE_DELETE: frames.method(1, frames.QUEUE_DELETE_OK, bytes(4)),
    frames.BASIC_QOS: frames.method(1, frames.BASIC_QOS_OK),
    frames.CONNECTION_CLOSE: frames.method(0, frames.CONNECTION_CLOSE_OK),
    frames.CONNECTION_START_OK: frames.method(0, frames.CONNECTION_TUNE, pack(">HIH", 2047, 131072, 0)),
}


class _Sink:
    """The state that all connections share: the number of messages."""

    def __init__(self, depth: int, variety: Variety) -> None:
        self.depth = depth
        self.variety = variety


class _Session:
    """One connection: answers the tool's requests until it publishes or consumes."""

    def __init__(self, connection: socket.socket, sink: _Sink) -> None:
        self._socket = connection
        self._sink = sink
        self._received = b""

    def run(self) -> None:
        with self._socket:
            self._take(8)
            start = (
                b"\0\x09" + frames.table({"product": "null sink"}) + frames.longstr(b"PLAIN") + frames.longstr(b"en_US")
            )
            self._socket.sendall(frames.method(0, frames.CONNECTION_START, start))
            while self._answer():
                pass

    def _answer(self) -> bool:
        head = self._take(frames.FRAME_HEAD_SIZE)
        if not head:
            return False
        payload = self._take(frames.FRAME_HEAD.unpack(head)[2] + 1)
        (method,) = unpack_from(">I", payload)
        if method == frames.QUEUE_DECLARE:
            name = payload[6 : 7 + payload[6]]
            self._socket.sendall(frames.method(1, frames.QUEUE_DECLARE_OK, name + pack(">II", self._sink.depth, 0)))
        elif method == frames.BASIC_PUBLISH:
            self._discard(head + payload)
            return False
        elif method == frames.BASIC_CONSUME:
            tag_at = 7 + payload[6]
            self._socket.sendall(frames.method(1, frames.BASIC_CONSUME_OK, frames.shortstr(CONSUMER_TAG)))
            self._deliver(payload[tag_at : tag_at + 1 + payload[tag_at]])
        elif method in _ANSWERS:
            self._socket.sendall(_ANSWERS[method])
        return True

    def _take(self, size: int) -> bytes:
        while len(self._received) < size:
            data = self._socket.recv(4096)
            if not data:
                return b""
            self._received += data
        taken, self._received = self._received[:size], self._received[size:]
        return taken

    def _discard(self, first: bytes) -> None:
        """Count the publishes, of which `first` is the first method frame, until the connection is closed."""
        close = frames.connection_close()
        rest = first + self._received
        while True:
            self._sink.depth += rest.count(_PUBLISH)
            if rest.endswith(close):
                self._socket.sendall(_ANSWERS[frames.CONNECTION_CLOSE])
                return
            received = self._socket.recv(1 << 20)
            if not received:
                return
            # Search the end of the counted bytes again, enough to miss no publish and to count none twice.
            rest = rest[-len(_PUBLISH) + 1 :] + received

    def _deliver(self, tag: bytes) -> None:
        exchange_and_key = frames.shortstr("") + frames.shortstr("null")
        contents = [
            frames.frame(frames.HEADER, 1, pack(">HHQ", 60, 0, len(message.body)) + properties(message, 1))
            + body_frames(1, message.body, 131072)
            for message in messages(self._sink.variety, 100, 20 * _DELIVERIES_A_WRITE)
        ]
        for first in range(0, self._sink.depth, _DELIVERIES_A_WRITE):
            number = min(_DELIVERIES_A_WRITE, self._sink.depth - first)
            self._socket.sendall(
                b"".join(
                    frames.method(1, frames.BASIC_DELIVER, tag + pack(">QB", first + i + 1, 0) + exchange_and_key)
                    + contents[(first + i) % len(contents)]
                    for i in range(number)
                )
            )


def serve(listener: socket.socket, depth: int, variety: Variety = Variety()) -> None:  # noqa: B008 (immutable)
    """Answer connections until the listener is shut down. `depth` messages are ready at the start."""
    sink = _Sink(depth, variety)
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_Session(connection, sink).run, daemon=True).start()


def cost(count: int, *, consume: bool, varied: bool) -> tuple[float, float]:
    """Return the rate (messages/s), and the tool's CPU seconds per million messages, of `count` publishes or
    deliveries.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sink = multiprocessing.get_context("fork").Process(
            target=serve, args=(listener, count if consume else 0, _VARIED if varied else Variety()), daemon=True
        )
        sink.start()
        url = f"amqp://127.0.0.1:{listener.getsockname()[1]}"
        role = ["--producers", "0", "--queue", "null"] if consume else ["--consumers", "0", "--count", str(count)]
        load = ["--scenario", "varied"] if varied else []
        command = [sys.executable, "-m", "escrowmq.perf", "--url", url, "--json", *load, *role]
        try:
            result = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
        finally:
            sink.kill()
    return result["rates"]["deliver" if consume else "publish"], result["cpu_seconds_per_million"]


if __name__ == "__main__":
    for kind, varied in (("alike", False), ("varied", True)):
        for what, consume in (("publish", False), ("consume", True)):
            rate, cpu = cost(3_000_000, consume=consume, varied=varied)
            print(f"{what}, {kind}: {rate:,.0f} messages/s, {cpu:.2f} s of CPU per million")
