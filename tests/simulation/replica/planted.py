"""Planted bugs in replication, which the histories must find."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from escrowmq.replica.entries import NO_CHAIN, Entry, FrameChunk, LeaderClaim, Stamp, encode
from escrowmq.replica.fold import Applied, Fold
from escrowmq.replica.leader import CopiedPiece, Leader
from escrowmq.replica.log import StoredEntry
from escrowmq.replica.tail import LogTail

_apply = Fold.apply
_add_chunk = Fold._add_chunk
_read_to = LogTail.read_to


def answer_trusted(self: Leader, entries: Sequence[Entry], data: list[bytes], positions: list[int]) -> None:
    """Take an answer for a proof that nothing else is in the log."""
    for each in data:
        self._tail.take(StoredEntry(self._tail.position, each))
    self._tail.position = positions[-1] + 1


def claimed_blindly(self: Leader) -> bool:
    """Lead after the claim was stored, whether it counts or not."""
    self._tail.read_to_end()
    stamp = Stamp(self._tail.fold.epoch + 1, self._tail.fold.chain, self._tail.position)
    self.claim = LeaderClaim(stamp, self._make_id(), self._tail.fold.next_lsn, self._node, self._url)
    self._log.append([encode(self.claim)])
    self._tail.fold.apply(self.claim, self._tail.position)
    self._tail.position = self._log.end()
    return True


def without_epochs(self: Fold, entry: Entry, position: int) -> Applied:
    """Let the entries of deposed leaders count."""
    if not isinstance(entry, LeaderClaim) and entry.stamp.epoch < self.epoch:
        entry = replace(entry, stamp=Stamp(self.epoch, self.chain))
    return _apply(self, entry, position)


def without_proof(self: Leader) -> None:
    """Answer from memory."""


def hole_skipped(self: Fold, chunk: FrameChunk) -> Applied:
    """Go on behind a gap in a frame."""
    if chunk.lsn == self.next_lsn and chunk.offset > self._received:
        self._parts.append(bytes(chunk.offset - self._received))
        self._received, self._size = chunk.offset, chunk.size
    return _add_chunk(self, chunk)


def partial_frame_kept(self: Fold) -> None:
    """Let the next leader's chunks continue an unfinished frame."""
    if self._received == self._size:
        self._parts, self._received, self._size = [], 0, 0


def unanswered_taken_for_stored(self: Leader, entries: list[Entry]) -> None:
    """Take appends for done whose fate is unknown."""
    self._check()
    stamp = Stamp(self.claim.stamp.epoch, self._tail.fold.chain, self._tail.position)
    entries = [replace(entry, stamp=stamp) for entry in entries]
    try:
        positions = self._log.append([encode(entry) for entry in entries])
    except Exception:  # noqa: BLE001 - that is the bug
        for entry in entries:
            self._tail.fold.apply(entry, self._tail.position)
        return
    self._account(entries, [encode(entry) for entry in entries], positions)


def same_chain(self: LeaderClaim, next_lsn: int) -> bytes:
    """Tell claims apart by their numbers only."""
    return NO_CHAIN


def read_on(self: LogTail, stamp: Stamp) -> None:
    """Read on although an entry does not fit."""


def nothing_restored(self: Leader, pieces: Iterable[CopiedPiece]) -> int:
    """Lead without what the log has lost."""
    return 0


def gap_overlooked(self: LogTail, end: int) -> None:
    """Go on at the end of a log that is shorter than what was read."""
    self.position = min(self.position, end)
    _read_to(self, end)


def trimmed_too_far(self: Leader, oldest_lsn: int) -> int:
    """Trim what a snapshot covers, whether segments have messages or not."""
    position = self._tail.segments[-1].position
    self._log.trim(position)
    return position


def trimmed_anywhere(self: Leader, oldest_lsn: int) -> int:
    """Trim to an entry that is not the start of a segment."""
    position = self._tail.segments[-1].position + 1
    if position < self._tail.position:
        self._log.trim(position)
    return self._log.begin()


PLANTED: Final[dict[str, dict[tuple[Any, str], object]]] = {
    "the answer to an append is trusted": {(Leader, "_account"): answer_trusted},
    "a claim is not read back": {(Leader, "take_over"): claimed_blindly},
    "entries of deposed leaders count": {(Fold, "apply"): without_epochs},
    "an answer from memory without a proof": {(Leader, "prove"): without_proof},
    "a gap is skipped": {(Fold, "_add_chunk"): hole_skipped},
    "an unfinished frame is continued": {(Fold, "_drop_partial"): partial_frame_kept},
    "an append without an answer is taken for stored": {(Leader, "_append"): unanswered_taken_for_stored},
    "the log is trimmed before what lives": {(Leader, "trim"): trimmed_too_far},
    "the log is trimmed within a segment": {(Leader, "trim"): trimmed_anywhere},
}
PLANTED_WITH_LOSSES: Final[dict[str, dict[tuple[Any, str], object]]] = {
    "claims are told apart by their numbers only": {(LeaderClaim, "chain_at"): same_chain},
    "a node reads on although an entry does not fit": {(LogTail, "_doubt"): read_on},
    "what the log has lost is not put back": {(Leader, "restore"): nothing_restored},
    "a log that has become shorter is read on": {(LogTail, "read_to"): gap_overlooked},
}
