"""The rate at which a bulk reader gets reserved messages.

`python bench/bulk_read.py [--messages N] [--body BYTES] [--run N]` fills a broker, reserves all messages for one group,
and reads them over one socket with a client that only reads. The data is decoded afterwards. With `--run N`, N messages
are published in one write, and therefore form one block.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from escrowmq.wire.amqp091 import bulk, frames, spec
from escrowmq.wire.amqp091.method import Method
from escrowmq.wire.amqp091.properties import Properties

FRAME_MAX = 131_072
RANGE = 10_000
AHEAD = 2  # requests in flight
MOST_BYTES = 16 << 20


class Reader:
    """A blocking connection with one channel."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.view = memoryview(bytearray(64 << 20))
        self.begin = self.end = 0
        self.socket.sendall(frames.PROTOCOL_HEADER)
        self.method()
        self.call(spec.ConnectionStartOk({}, "PLAIN", b"\0guest\0guest", "en_US"), channel=0)
        self.send(spec.ConnectionTuneOk(0, FRAME_MAX, 0), channel=0)
        self.call(spec.ConnectionOpen("/"), channel=0)
        self.call(spec.ChannelOpen())

    def send(self, *methods: Method, channel: int = 1) -> None:
        self.socket.sendall(b"".join(frames.method_frame(channel, method) for method in methods))

    def call(self, method: Method, channel: int = 1) -> Method:
        self.send(method, channel=channel)
        return self.method()

    def frame(self) -> tuple[int, memoryview]:
        """Return the next frame's type and payload; the payload is valid until the next call."""
        need = frames.FRAME_HEADER_SIZE
        while True:
            have = self.end - self.begin
            if have >= need:
                kind, _, size = frames.FRAME_HEADER.unpack_from(self.view, self.begin)
                need = size + frames.FRAME_OVERHEAD
                if have >= need:
                    at = self.begin + frames.FRAME_HEADER_SIZE
                    self.begin += need
                    return kind, self.view[at : at + size]
            if len(self.view) - self.begin < FRAME_MAX:
                self.view[: self.end - self.begin] = self.view[self.begin : self.end]
                self.begin, self.end = 0, self.end - self.begin
            got = self.socket.recv_into(self.view[self.end :])
            if not got:
                raise ConnectionError("the broker closed the connection")
            self.end += got

    def method(self) -> Method:
        return frames.decode_method(bytes(self.frame()[1]))

    def content(self) -> bytearray:
        """Return the body that follows a method."""
        size, _ = frames.decode_header(bytes(self.frame()[1]))
        body = bytearray(size)
        at = 0
        while at < size:
            payload = self.frame()[1]
            body[at : at + len(payload)] = payload
            at += len(payload)
        return body


def fill(reader: Reader, count: int, size: int, run: int) -> None:
    """Publish persistent messages to a durable queue, with the properties of a typical producer."""
    reader.call(spec.QueueDeclare("bulk", durable=True))
    reader.call(spec.ConfirmSelect())
    props = Properties(content_type="application/json", delivery_mode=2).encode()
    one = frames.method_frame(1, spec.BasicPublish("", "bulk")) + frames.content_frames(
        1, props, os.urandom(size), FRAME_MAX
    )
    done = 0
    while done < count:
        some = min(run, count - done)
        reader.socket.sendall(one * some)
        done += some
        while True:
            ack = reader.method()
            if isinstance(ack, spec.BasicAck) and ack.delivery_tag >= done:
                break


def blocks(reader: Reader, end: int) -> Iterator[bytearray]:
    """Yield the reserved messages in order."""
    ranges = [(first, min(first + RANGE, end)) for first in range(1, end, RANGE)]
    asked = 0
    for i in range(len(ranges)):
        while asked < min(i + 1 + AHEAD, len(ranges)):
            first, stop = ranges[asked]
            reader.send(spec.EscrowRead("bulk", "bench", first, stop, MOST_BYTES))
            asked += 1
        answer = reader.method()
        assert isinstance(answer, spec.EscrowReadOk), answer
        assert answer.next == ranges[i][1], answer
        yield reader.content()


def main(count: int, size: int, run: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "escrowmq", "serve", "--data-dir", folder, "--listen", "127.0.0.1:0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as broker:
            try:
                assert broker.stdout is not None
                measure(Reader(int(broker.stdout.readline().split()[1].rpartition(":")[2])), count, size, run)
            finally:
                broker.terminate()


def measure(reader: Reader, count: int, size: int, run: int) -> None:
    fill(reader, count, size, run)
    started = time.perf_counter()
    while True:
        state = reader.call(spec.EscrowHold("bulk", "bench", count))
        assert isinstance(state, spec.EscrowHoldOk), state
        if not state.count:
            break
    print(f"hold    {count / (time.perf_counter() - started):>12,.0f} messages/s")
    started = time.perf_counter()
    parts = list(blocks(reader, state.end))
    seconds = time.perf_counter() - started
    print(f"read    {count / seconds:>12,.0f} messages/s  {sum(map(len, parts)) / seconds / 1e6:,.0f} MB/s")
    started = time.perf_counter()
    assert sum(bulk.decode(part).count for part in parts) == count
    print(f"decode  {count / (time.perf_counter() - started):>12,.0f} messages/s")
    started = time.perf_counter()
    reader.call(spec.EscrowSettle("bulk", "bench", state.end))
    print(f"settle  {count / (time.perf_counter() - started):>12,.0f} messages/s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=500_000)
    parser.add_argument("--body", type=int, default=200)
    parser.add_argument("--run", type=int, default=100)
    options = parser.parse_args()
    main(options.messages, options.body, options.run)
