"""Entries and headers for tests of replication."""

from __future__ import annotations

from escrowmq.journal.format import TYPE_SEGMENT, FileHeader
from escrowmq.replica.entries import FrameChunk, LeaderClaim, SegmentStart, Stamp


def header(lsn: int, created: int = 0, journal: bytes = bytes(16), kind: int = TYPE_SEGMENT) -> bytes:
    return FileHeader(kind, journal, lsn, created).pack()


def claim(epoch: int, node: str, chain: bytes = bytes(8), lsn: int = 0, after: int = 0) -> LeaderClaim:
    """A claim whose id is made of the node's name."""
    return LeaderClaim(Stamp(epoch, chain, after), node.encode().ljust(16, b"."), lsn, node, f"amqp://{node}")


FIRST = claim(1, "a")
ONE = Stamp(1, FIRST.chain_at(0))
"""The stamp of the first leader."""


def second(next_lsn: int) -> tuple[LeaderClaim, Stamp]:
    """The claim that follows FIRST, and the stamp of its leader if the frames end at `next_lsn` there."""
    found = claim(2, "b", ONE.chain)
    return found, Stamp(2, found.chain_at(next_lsn))


def start(stamp: Stamp, lsn: int, created: int = 0, end: int | None = None) -> SegmentStart:
    """The start of a segment by node a."""
    return SegmentStart(stamp, lsn if end is None else end, header(lsn, created), 0, "a", "amqp://a")


def chunk(stamp: Stamp, lsn: int, data: bytes = bytes(16), offset: int = 0, size: int = 16) -> FrameChunk:
    """A piece of a frame of 16 bytes; the whole of it by default."""
    return FrameChunk(stamp, lsn, size, offset, data)
