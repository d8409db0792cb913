"""The broker's own CPU time per message that Spark's sink writes: endpoint, core and journal, without sockets.

python bench/block_path.py [--count 400000] [--only varied] [--profile]

Rows like those of `peer_rows` are encoded to blocks, as the sink does it, before the measurement begins. Branches of
100,000 messages are then published, prepared and committed by a decision. The journal syncs after each turn. Only CPU
time is measured, so a busy machine hardly matters.
"""

from __future__ import annotations

import cProfile
import gc
import hashlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pyarrow as pa

from bench.hot_path import Host, connect, send
from escrowmq.core.branches.xid import Xid
from escrowmq.spark.encoding.blocks import ROWS, contents, pieces
from escrowmq.wire.amqp091 import spec
from escrowmq.wire.amqp091.frames import content_frames, method_frame

BRANCH: Final = 100_000
FRAME_MAX: Final = 131_072
KINDS: Final = ("uniform", "varied")
_XID: Final = Xid(1, b"bench", b"0").encode()


def _id(letter: str, number: int) -> str:
    return hashlib.sha256(f"{letter}{number}".encode()).hexdigest()[:36]


def rows(kind: str, first: int, count: int) -> tuple[pa.Array, pa.Array, pa.Array, pa.Array]:
    """Return bodies, properties, headers and routing keys."""
    varied = kind == "varied"
    numbers = range(first, first + count) if varied else [1] * count
    sizes = [50 + number % 81 if varied else 90 for number in numbers]
    bodies = [(b"%064x" % number * 3)[-size:] for number, size in zip(numbers, sizes, strict=True)]
    properties = pa.StructArray.from_arrays(
        [
            pa.array([_id("m", number) for number in numbers]),
            pa.array([_id("c", number) for number in numbers]),
            pa.array([(1_700_000_000 + number // 1000) * 1_000_000 for number in numbers], pa.timestamp("us")),
        ],
        ["message_id", "correlation_id", "timestamp"],
    )
    headers = pa.array(
        [
            [("traceparent", f"00-{_id('t', number)}-01"), ("sequence", str(number)), ("service", "orders")]
            for number in numbers
        ],
        pa.map_(pa.string(), pa.string()),
    )
    keys = pa.array([f"region.{number % 1000}.{number}" for number in numbers])
    return pa.array(bodies), properties, headers, keys


def blocks(kind: str, count: int) -> Iterator[tuple[int, bytes]]:
    """Yield the number of messages and the frames of each block."""
    for first in range(0, count, ROWS):
        size = min(ROWS, count - first)
        bodies, properties, headers, keys = rows(kind, first, size)
        for piece in pieces(contents(bodies, properties, headers, keys, FRAME_MAX), size, keyed=True):
            assert piece.block is not None
            frames = method_frame(1, spec.EscrowPublish("e", "")) + content_frames(1, b"\0\0", piece.block, FRAME_MAX)
            yield piece.end - piece.begin, frames


def measure(kind: str, count: int, profiler: cProfile.Profile | None) -> float:
    """Return the CPU time per message, in microseconds."""
    with tempfile.TemporaryDirectory(prefix="escrowmq-block-path-") as folder:
        host = Host(Path(folder))
        client = connect(host)
        send(client, 1, spec.QueueDeclare("q", durable=True), spec.ExchangeDeclare("e", "topic", durable=True))
        send(client, 1, spec.QueueBind("q", "e", "region.#"), spec.DtxDemarcationSelect())
        host.turn()
        prepared = list(blocks(kind, count))
        gc.collect()
        gc.freeze()
        if profiler is not None:
            profiler.enable()
        started = time.process_time()
        waiting = 0
        for number, (size, frames) in enumerate(prepared):
            if not waiting:
                send(client, 1, spec.DtxDemarcationStart(_XID))
            client.receive(frames)
            host.turn()
            waiting += size
            if waiting >= BRANCH or number == len(prepared) - 1:
                send(client, 1, spec.DtxDemarcationEnd(_XID), spec.DtxCoordinationPrepare(_XID))
                host.turn()
                send(client, 1, spec.EscrowDecide(1, b"bench", {"bqual": [b"0"]}, "bench", number))
                host.turn()
                waiting = 0
        spent = time.process_time() - started
        if profiler is not None:
            profiler.disable()
        ready = host.broker.directory.vhosts["/"].queues["q"].ready
        host.close()
        if ready != count:
            raise RuntimeError(f"{kind}: {ready} of {count} messages arrived")
        return spent / count * 1e6


@click.command()
@click.option("--count", default=400_000, show_default=True, help="The number of messages of each kind.")
@click.option("--only", type=click.Choice(KINDS), help="Measure only this kind of rows.")
@click.option("--profile", is_flag=True, help="Print a profile. Profiling makes everything slower.")
def main(count: int, only: str | None, *, profile: bool) -> None:
    """Print the CPU time per message, in microseconds."""
    for kind in KINDS if only is None else (only,):
        profiler = cProfile.Profile() if profile else None
        click.echo(f"{kind:10}{measure(kind, count, profiler):6.2f} us")
        if profiler is not None:
            profiler.print_stats("tottime")


if __name__ == "__main__":
    main()
