"""How much shorter compression makes the journal on a replicated log, and what it costs.

    python -m bench.entry_compression --piece 300000

The journals are those of a broker after the messages of the load tool, whose ids and bodies are random, and after JSON
documents with the flights from New York's airports in 2013. They are compressed in pieces, as entries of the log are.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pika
import zstandard
from isal import isal_zlib

from bench.brokers import EscrowMQ
from bench.measure import perf
from escrowmq.demo.flights import archive, encode, flights
from escrowmq.journal.format import FILE_HEADER_SIZE
from escrowmq.replica.compression import compress

_ROUNDS = 5
_MOST_BYTES = 30_000_000
_FLIGHTS = 100_000
_RAW_DEFLATE = -15


def _zstd(level: int) -> Callable[[bytes], bytes]:
    return zstandard.ZstdCompressor(level=level).compress


def _deflate(level: int) -> Callable[[bytes], bytes]:
    return lambda data: isal_zlib.compress(data, level, _RAW_DEFLATE)


WAYS: dict[str, Callable[[bytes], bytes]] = {
    "as entries are": lambda data: compress(data)[1],
    **{f"zstd, level {level}": _zstd(level) for level in (-5, -1, 1, 3)},
    **{f"deflate by ISA-L, level {level}": _deflate(level) for level in (0, 1, 2)},
}


def main() -> None:
    """Print how much shorter each way makes each journal, and the median speeds of five rounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--piece", type=int, default=300_000, help="bytes that are compressed together [300000]")
    arguments = parser.parse_args()
    for name, fill in (("load tool, random bodies", _fill_with_load), ("flights, JSON", _fill_with_flights)):
        with tempfile.TemporaryDirectory() as folder:
            broker = EscrowMQ(Path(folder))
            broker.start()
            try:
                fill(broker)
            finally:
                broker.stop()
            data = _journal(broker.data_dir)
        pieces = [data[at : at + arguments.piece] for at in range(0, len(data), arguments.piece)]
        print(f"{name}: {len(pieces)} pieces of {arguments.piece:,} bytes")
        _measure(pieces)


def _measure(pieces: list[bytes]) -> None:
    size = sum(map(len, pieces))
    for name, pack in WAYS.items():
        unpack = _inverse(name)
        taken, packed = [], list[bytes]()
        for _ in range(_ROUNDS):
            at = time.process_time()
            packed = [pack(piece) for piece in pieces]
            between = time.process_time()
            for piece in packed:
                unpack(piece)
            taken.append((between - at, time.process_time() - between))
        there, back = (size / statistics.median(each) / 1e6 for each in zip(*taken, strict=True))
        factor = size / sum(map(len, packed))
        print(f"  {name:27} {factor:5.2f} times shorter, {there:5.0f} MB/s, and back {back:5.0f} MB/s")


def _inverse(name: str) -> Callable[[bytes], bytes]:
    if name.startswith("deflate"):
        return lambda data: isal_zlib.decompress(data, _RAW_DEFLATE)
    return zstandard.ZstdDecompressor().decompress


def _fill_with_load(broker: EscrowMQ) -> None:
    perf(broker, "--scenario", "varied-confirms", "--duration", "2")


def _fill_with_flights(broker: EscrowMQ) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("flights", durable=True)
        persistent = pika.BasicProperties(delivery_mode=2, content_type="application/json")
        for number, flight in enumerate(flights(archive(), _FLIGHTS)):
            channel.basic_publish("", "flights", encode(number, flight), persistent)
        channel.tx_select()
        channel.tx_commit()


def _journal(folder: Path) -> bytes:
    """Return the frames of the journal, up to a limit."""
    files = sorted(folder.glob("*.log"))
    return b"".join(file.read_bytes().rstrip(b"\0")[FILE_HEADER_SIZE:] for file in files)[:_MOST_BYTES]


if __name__ == "__main__":
    main()
