"""Content in the log: the pager reads blocks ahead in large reads, and writes content that is only in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from escrowmq.core.budget import LOAD, LOADED_BYTES, Budget
from escrowmq.core.messages.entry import Run
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.ports import Log
from escrowmq.core.records.blocks import BLOCK, Block, decode_block, encode_block
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.references import TRANSIENT, Reference

READ_AHEAD: Final = 256 * 1024
"""Bytes that are read at once when blocks are wanted one after the other."""
_FIRST_READ: Final = 8 * 1024  # the first read at a new place; each read that continues it is twice as large
_CHUNKS: Final = 32  # queues are loaded in turn, and each may be in another part of the log
_KEPT_BYTES: Final = 4 * 1024 * 1024
_ENVELOPES: Final = 1024


class LogPager:
    """Loads blocks from the log, and stores runs that were only in memory (records of kind PAGE)."""

    __slots__ = ("_budget", "_chunk", "_chunk_lsn", "_chunks", "_envelopes", "_kept_bytes", "_log")

    def __init__(self, log: Log, budget: Budget | None = None) -> None:
        """Loading is charged to `budget`."""
        self._log = log
        self._budget = budget or Budget()
        self._chunks: dict[int, bytes] = {}  # by LSN; the most recently used chunk is last
        self._kept_bytes = 0
        self._chunk = b""
        self._chunk_lsn = 0
        self._envelopes: dict[bytes, Envelope] = {}

    def load(self, reference: Reference) -> Block:
        """Return the contents that `reference` names, with their envelope and the time at which they arrived."""
        lsn = reference.lsn
        at = lsn - self._chunk_lsn
        if not 0 <= at <= len(self._chunk) - BLOCK.size:
            at = self._turn_to(lsn)
        length = 4 + int(BLOCK.unpack_from(self._chunk, at)[0])
        if at + length > len(self._chunk):
            # The block continues after the bytes that were read, and the next blocks are probably wanted too.
            ahead = self._log.read_ahead(lsn, max(length, min(2 * len(self._chunk), READ_AHEAD)))
            self._keep(lsn, ahead if len(ahead) >= length else self._log.read(lsn, length))
            at = 0
        self._budget.left -= LOAD + length // LOADED_BYTES
        return decode_block(self._chunk, at, reference.start & ~TRANSIENT, reference.length, self._shared)

    def envelopes(self, lsns: Iterable[int]) -> Iterator[Envelope]:
        """Yield the envelopes of the blocks at `lsns`, which are best in order, without their contents."""
        read, unpack, head = self._log.read_ahead, BLOCK.unpack_from, BLOCK.size
        chunk, begin = b"", 0
        for lsn in lsns:
            at = lsn - begin
            if not 0 <= at <= len(chunk) - head:
                chunk, begin, at = read(lsn, READ_AHEAD), lsn, 0
            size = unpack(chunk, at)[3]
            encoded = chunk[at + head : at + head + size]
            if len(encoded) < size:
                encoded = self._log.read(lsn + head, size)
            yield self._envelopes.get(encoded) or self._shared(encoded)

    def _turn_to(self, lsn: int) -> int:
        """Select the chunk that contains the start of the block at `lsn`, reading it if necessary; return its offset
        there.
        """
        most = min(_FIRST_READ, READ_AHEAD)
        for begin, chunk in self._chunks.items():
            end = begin + len(chunk)
            if begin <= lsn <= end - BLOCK.size:
                self._chunks[begin] = self._chunks.pop(begin)
                self._chunk_lsn, self._chunk = begin, chunk
                return lsn - begin
            if begin < lsn < end + len(chunk):
                most = max(most, min(2 * len(chunk), READ_AHEAD))
        self._keep(lsn, self._log.read_ahead(lsn, most))
        return 0

    def _keep(self, lsn: int, chunk: bytes) -> None:
        self._kept_bytes += len(chunk) - len(self._chunks.pop(lsn, b""))
        self._chunks[lsn] = chunk
        self._chunk_lsn, self._chunk = lsn, chunk
        while len(self._chunks) > 1 and (self._kept_bytes > _KEPT_BYTES or len(self._chunks) > _CHUNKS):
            self._kept_bytes -= len(self._chunks.pop(next(iter(self._chunks))))

    def _shared(self, encoded: bytes) -> Envelope:
        """Return one object for equal envelopes, so that the protocols' caches in it serve all of them."""
        known = self._envelopes.get(encoded)
        if known is None:
            if len(self._envelopes) >= _ENVELOPES:
                self._envelopes.clear()
            known = self._envelopes[encoded] = Envelope.decode(encoded)
        return known

    def store(self, run: Run, contents: Sequence[bytes]) -> int:
        """Write the content of a run that is not in the log yet, and return the block's LSN.

        Such a block does not survive a restart.
        """
        run.lsn = self._log.append(Kind.PAGE, *encode_block(run.time, run.envelope, contents))
        run.index = TRANSIENT
        self._log.retain(run.lsn, len(contents))
        return run.lsn
