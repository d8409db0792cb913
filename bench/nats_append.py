"""How long one append to NATS takes: by the broker's own connection, by nats-py, and on a bare socket.

    python -m bench.nats_append --appends 2000 --size 2000

Three servers run on this machine, and each append waits for a majority of them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nats

from escrowmq.replica.engines import open_log
from escrowmq.replica.engines.address import EngineAddress
from escrowmq.replica.engines.nats_appender import NatsAppender
from escrowmq.replica.engines.nats_wire import PING, connect, publish, subscribe
from tests.engines.nats_nodes import NatsNodes

_ROUNDS = 5


def main() -> None:
    """Print the medians of five rounds, in microseconds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--appends", type=int, default=2000, help="in each round [2000]")
    parser.add_argument("--size", type=int, default=2000, help="bytes of an entry [2000]")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, NatsNodes(Path(folder), 3) as nodes:
        url = nodes.url("journal")
        open_log(url, timeout=30).close()
        address = EngineAddress.parse(url)
        host = f"127.0.0.1:{nodes.ports[nodes.leader('journal')]}"
        entry = os.urandom(arguments.size)
        appender = NatsAppender(address, 10)
        appender.connect([host])
        ways: dict[str, Callable[[int], Any]] = {
            "the broker's connection": lambda count: [appender.send([entry])() for _ in range(count)],
            "nats-py": lambda count: asyncio.run(_by_library(host, address.subject, entry, count)),
            "bare socket": lambda count: _bare(host, address.subject, entry, count),
        }
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for _ in range(_ROUNDS):
            for name, way in ways.items():
                way(100)
                began, used = time.perf_counter(), time.process_time()
                way(arguments.appends)
                taken[name].append((time.perf_counter() - began, time.process_time() - used))
        appender.close()
    for name, rounds in taken.items():
        wall, processor = (1e6 * statistics.median(each) / arguments.appends for each in zip(*rounds, strict=True))
        print(f"{name:24} {wall:6.0f} us, of which this process computes {processor:4.0f} us")


async def _by_library(host: str, subject: str, entry: bytes, count: int) -> None:
    client = await nats.connect(f"nats://{host}")
    jetstream = client.jetstream()
    for _ in range(count):
        await jetstream.publish(subject, entry)
    await client.close()


def _bare(host: str, subject: str, entry: bytes, count: int) -> None:
    name, _, port = host.rpartition(":")
    with socket.create_connection((name, int(port))) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.recv(1 << 16)
        sock.sendall(connect({"verbose": False}) + subscribe("bare.*") + PING)
        sock.recv(1 << 16)
        for _ in range(count):
            sock.sendall(publish(subject, [("bare.1", entry)]))
            answer = sock.recv(1 << 16)
            while not answer.endswith(b"}\r\n"):
                answer += sock.recv(1 << 16)


if __name__ == "__main__":
    main()
