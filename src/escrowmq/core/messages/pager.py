"""Message content in the log: read ahead in large reads, and written there when memory alone would hold it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from escrowmq.core.messages.entry import Run
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.ports import Log
from escrowmq.core.records.blocks import BLOCK, Block, decode_block, encode_block
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.references import TRANSIENT, Reference

READ_AHEAD: Final = 256 * 1024
_ENVELOPES: Final = 1024


class LogPager:
    """Loads blocks from the log, and stores those that were in memory alone (records of kind PAGE)."""

    __slots__ = ("_chunk", "_chunk_lsn", "_envelopes", "_log")

    def __init__(self, log: Log) -> None:
        self._log = log
        self._chunk = b""
        self._chunk_lsn = 0
        self._envelopes: dict[bytes, Envelope] = {}

    def load(self, reference: Reference) -> Block:
        """The bodies that `reference` names, with their envelope and the time at which they came."""
        lsn = reference.lsn
        at = lsn - self._chunk_lsn
        if not 0 <= at <= len(self._chunk) - BLOCK.size:
            self._keep(lsn, self._log.read_ahead(lsn, READ_AHEAD))
            at = 0
        length = 4 + int(BLOCK.unpack_from(self._chunk, at)[0])
        if at + length > len(self._chunk):
            # The block goes on behind what was read; the next ones are likely to be wanted after it.
            ahead = self._log.read_ahead(lsn, max(length, READ_AHEAD))
            self._keep(lsn, ahead if len(ahead) >= length else self._log.read(lsn, length))
            at = 0
        block = decode_block(self._chunk, at, reference.start & ~TRANSIENT, reference.length)
        return Block(block.time, self._shared(block.envelope), block.contents)

    def _keep(self, lsn: int, chunk: bytes) -> None:
        self._chunk_lsn, self._chunk = lsn, chunk

    def _shared(self, envelope: Envelope) -> Envelope:
        """One object for equal envelopes, so that what protocols cache with it serves for all of them."""
        key = envelope.encode()
        known = self._envelopes.get(key)
        if known is None:
            if len(self._envelopes) >= _ENVELOPES:
                self._envelopes.clear()
            known = self._envelopes[key] = envelope
        return known

    def store(self, run: Run, contents: Sequence[bytes]) -> int:
        """Write the content of a run that is not in the log yet; its block's LSN. It does not survive a restart."""
        run.lsn = self._log.append(Kind.PAGE, *encode_block(run.time, run.envelope, contents))
        run.index = TRANSIENT
        self._log.retain(run.lsn, len(contents))
        return run.lsn
