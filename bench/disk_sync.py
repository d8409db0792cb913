"""The cost of one group commit on this disk, by the way its space was prepared: `python bench/disk_sync.py [DIR]`.

The script writes and syncs batches one after another, as the journal does. append: the file grows. reserved: space is
reserved with `posix_fallocate` first. zeroed: zeros are written and synced first. recycled: an old segment is
overwritten. The preparation is not timed.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable

SIZES = ((200, 1000), (100_000, 200), (10_000_000, 6))
ROUNDS = 5
CHUNK = 1 << 20


def grow(fd: int, size: int) -> None:
    """Leave the file empty."""
    os.ftruncate(fd, 0)


def reserve(fd: int, size: int) -> None:
    """Reserve blocks without writing them."""
    os.ftruncate(fd, 0)
    os.posix_fallocate(fd, 0, size)


def overwrite(byte: bytes) -> Callable[[int, int], None]:
    """Write all blocks with `byte` first."""

    def fill(fd: int, size: int) -> None:
        os.ftruncate(fd, 0)
        for offset in range(0, size, CHUNK):
            os.pwrite(fd, byte * min(CHUNK, size - offset), offset)

    return fill


WAYS: dict[str, Callable[[int, int], None]] = {
    "append": grow,
    "reserved": reserve,
    "zeroed": overwrite(b"\0"),
    "recycled": overwrite(b"x"),
}


def measure(fd: int, prepare: Callable[[int, int], None], size: int, count: int) -> list[float]:
    """Return the seconds of each write with its sync."""
    prepare(fd, size * count)
    os.fsync(fd)
    data = os.urandom(size)
    times = []
    for i in range(count):
        started = time.perf_counter()
        os.pwrite(fd, data, i * size)
        os.fdatasync(fd)
        times.append(time.perf_counter() - started)
    return times


def main(directory: str | None) -> None:
    """Alternate the ways, so that other load on the machine affects all of them."""
    print(f"{'bytes':>9} {'way':<9} {'median µs':>10} {'mean µs':>9} {'p99 µs':>9}   median of each round")
    with tempfile.NamedTemporaryFile(dir=directory) as file:
        for size, count in SIZES:
            rounds: dict[str, list[list[float]]] = {way: [] for way in WAYS}
            for _ in range(ROUNDS):
                for way, prepare in WAYS.items():
                    rounds[way].append(measure(file.fileno(), prepare, size, count))
            for way, runs in rounds.items():
                times = sorted(1e6 * seconds for run in runs for seconds in run)
                figures = (statistics.median(times), statistics.mean(times), times[int(0.99 * len(times))])
                medians = " ".join(f"{1e6 * statistics.median(run):.0f}" for run in runs)
                print(f"{size:>9} {way:<9} {figures[0]:>10.0f} {figures[1]:>9.0f} {figures[2]:>9.0f}   {medians}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
