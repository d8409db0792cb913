"""A server that speaks just enough AMQP to be loaded, and does nothing: what is left is what the load tool costs.

It discards publishes unread; to a consumer it sends deliveries that were encoded beforehand, as fast as they are taken.
`python bench/nullsink.py` measures both.
"""

from __future__ import annotations

import json
import multiprocessing
import socket
import subprocess
import sys
import threading
from struct import pack, unpack_from

from escrowmq.perf import frames
from escrowmq.perf.block import PublishBlock

_DELIVERIES_A_WRITE = 500
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
    """What all connections share: how many messages there are."""

    def __init__(self, depth: int) -> None:
        self.depth = depth


class _Session:
    """One connection: answers what the tool asks, until it publishes or consumes."""

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
            self._discard(len(head) + len(payload))
            return False
        elif method == frames.BASIC_CONSUME:
            self._deliver()
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

    def _discard(self, method_length: int) -> None:
        """Count what comes by its length, all publishes being as long as the first."""
        header = self._take(frames.FRAME_HEAD_SIZE)
        payload = self._take(frames.FRAME_HEAD.unpack(header)[2] + 1)
        (body_size,) = unpack_from(">Q", payload, 4)
        unit = method_length + len(header) + len(payload) + body_size + frames.FRAME_OVERHEAD
        total = method_length + len(header) + len(payload) + len(self._received)
        self._received = b""
        before = self._sink.depth
        buffer = bytearray(1 << 20)
        close = frames.connection_close()
        while received := self._socket.recv_into(buffer):
            total += received
            self._sink.depth = before + total // unit
            if total % unit == len(close) and buffer.endswith(close, 0, received):
                self._socket.sendall(_ANSWERS[frames.CONNECTION_CLOSE])
                return

    def _deliver(self) -> None:
        tag = 1
        deliveries = self._sink.depth
        exchange_and_key = frames.shortstr("") + frames.shortstr("null")
        content = PublishBlock(1, "", ["null"], 100, persistent=False, frame_max=131072, count=1).slice(0, 1)
        content = content[frames.FRAME_HEAD.unpack_from(content)[2] + frames.FRAME_OVERHEAD :]
        for first in range(0, deliveries, _DELIVERIES_A_WRITE):
            number = min(_DELIVERIES_A_WRITE, deliveries - first)
            self._socket.sendall(
                b"".join(
                    frames.method(
                        1,
                        frames.BASIC_DELIVER,
                        frames.shortstr("perf-0000") + pack(">QB", tag + i, 0) + exchange_and_key,
                    )
                    + content
                    for i in range(number)
                )
            )
            tag += number


def serve(listener: socket.socket, depth: int) -> None:
    """Answer connections until the listener is shut down; at the start there are `depth` messages to be delivered."""
    sink = _Sink(depth)
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_Session(connection, sink).run, daemon=True).start()


def cost(count: int, *, consume: bool) -> tuple[float, float]:
    """Rate (messages/s), and CPU seconds of the tool per million messages, of `count` publishes or deliveries."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sink = multiprocessing.get_context("fork").Process(
            target=serve, args=(listener, count if consume else 0), daemon=True
        )
        sink.start()
        url = f"amqp://127.0.0.1:{listener.getsockname()[1]}"
        role = ["--producers", "0", "--queue", "null"] if consume else ["--consumers", "0", "--count", str(count)]
        command = [sys.executable, "-m", "escrowmq.perf", "--url", url, "--json", *role]
        try:
            result = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
        finally:
            sink.kill()
    return result["rates"]["deliver" if consume else "publish"], result["cpu_seconds_per_million"]


if __name__ == "__main__":
    for what, consume in (("publish", False), ("consume", True)):
        rate, cpu = cost(3_000_000, consume=consume)
        print(f"{what}: {rate:,.0f} messages/s, {cpu:.2f} s of CPU for a million")
