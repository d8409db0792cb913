"""Planted bugs in replication, which the histories must find."""

from __future__ import annotations

from typing import Any, Final

from escrowmq.replica.entries import Entry, FrameChunk, LeaderClaim, encode
from escrowmq.replica.fold import Applied, Fold
from escrowmq.replica.leader import Leader
from escrowmq.replica.log import StoredEntry

_apply = Fold.apply
_add_chunk = Fold._add_chunk


def answer_trusted(self: Leader, data: list[bytes], positions: list[int]) -> None:
    """Take an answer for a proof that nothing else is in the log."""
    for each in data:
        self._tail.take(StoredEntry(self._tail.position, each))
    self._tail.position = positions[-1] + 1


def claimed_blindly(self: Leader) -> bool:
    """Lead after the claim was stored, whether it counts or not."""
    self._tail.read_to_end()
    self.claim = LeaderClaim(self._tail.fold.epoch + 1, self._node, self._url)
    self._log.append([encode(self.claim)])
    self._tail.fold.apply(self.claim)
    self._tail.position = self._log.end()
    return True


def without_epochs(self: Fold, entry: Entry) -> Applied:
    """Let the entries of deposed leaders count."""
    if not isinstance(entry, LeaderClaim) and entry.epoch < self.epoch:
        own, self.epoch = self.epoch, entry.epoch
        try:
            return _apply(self, entry)
        finally:
            self.epoch = own
    return _apply(self, entry)


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
    try:
        positions = self._log.append([encode(entry) for entry in entries])
    except Exception:  # noqa: BLE001 - that is the bug
        for entry in entries:
            self._tail.fold.apply(entry)
        return
    self._account([encode(entry) for entry in entries], positions)


PLANTED: Final[dict[str, dict[tuple[Any, str], object]]] = {
    "the answer to an append is trusted": {(Leader, "_account"): answer_trusted},
    "a claim is not read back": {(Leader, "take_over"): claimed_blindly},
    "entries of deposed leaders count": {(Fold, "apply"): without_epochs},
    "an answer from memory without a proof": {(Leader, "prove"): without_proof},
    "a gap is skipped": {(Fold, "_add_chunk"): hole_skipped},
    "an unfinished frame is continued": {(Fold, "_drop_partial"): partial_frame_kept},
    "an append without an answer is taken for stored": {(Leader, "_append"): unanswered_taken_for_stored},
}
