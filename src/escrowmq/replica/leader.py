"""Leads: claims an epoch, appends the journal's segments and frames, and proves that it still leads.

The answer to an append is trusted only together with its positions. If they follow the last entry that this node knows,
no other entry lies between, so no other claim does. Otherwise, or without an answer, the node reads what is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from escrowmq.replica.entries import (
    CHUNK_SIZE,
    Entry,
    Heartbeat,
    LeaderClaim,
    Resignation,
    SegmentStart,
    chunks,
    encode,
)
from escrowmq.replica.errors import AppendUnknown, Deposed, EntriesLost
from escrowmq.replica.log import ReplicatedLog, StoredEntry
from escrowmq.replica.tail import LogTail

ATTEMPTS: Final = 5
"""How often an append is repeated whose answer did not come."""


class Leader:
    """A node that wants to lead. Every method blocks, and raises OSError if the log cannot be reached.

    `node` names the process and not only the machine: no two starts may have the same name. The copy of `tail` gets the
    node's own frames, too, once they count.
    """

    def __init__(self, log: ReplicatedLog, tail: LogTail, node: str, url: str, *, chunk_size: int = CHUNK_SIZE) -> None:
        self._log = log
        self._tail = tail
        self._node = node
        self._url = url
        self._chunk_size = chunk_size
        self.claim = LeaderClaim(0, node, url)

    @property
    def leads(self) -> bool:
        """Whether the node leads, as far as it knows."""
        return self._tail.fold.leads(self.claim)

    def take_over(self) -> bool:
        """LeaderClaim the next epoch, and return whether the claim counts. The node then has every frame that counts.

        If the log does not answer, the claim may come to count later. `leads` is true as soon as the node has read it.
        Raises EntriesLost.
        """
        self._tail.read_to_end()
        self.claim = LeaderClaim(self._tail.fold.epoch + 1, self._node, self._url)
        try:
            position = self._log.append([encode(self.claim)])[0]
        except AppendUnknown:
            self._tail.read_to_end()
        else:
            self._tail.read_to(position + 1)
        return self.leads

    def begin_segment(self, header: bytes, messages: int = 0) -> None:
        """Append the header of a segment, and return when it counts. Raises as `append_frame` does.

        `messages` is the number that the segment before ever held.
        """
        self._append([SegmentStart(self.claim.epoch, header, messages)])
        if self._tail.fold.segment != header:
            raise EntriesLost(self._tail.position, "the log has no place for the segment that this node began")

    def append_frame(self, lsn: int, frame: Sequence[bytes]) -> None:
        """Append a frame of the journal, in parts, and return when it counts.

        Raises:
            Deposed: Another node leads.
            AppendUnknown: The log did not answer, also not when it was asked again. The frame may come to count.
            EntriesLost: The log lost entries.
        """
        self._append(list(chunks(self.claim.epoch, lsn, frame, self._chunk_size)))
        end = lsn + sum(map(len, frame))
        if self._tail.fold.next_lsn != end:
            raise EntriesLost(self._tail.position, f"its frames end at LSN {self._tail.fold.next_lsn}, not at {end}")

    def prove(self) -> None:
        """Return if the node still led after this call had begun. Raises as `append_frame` does.

        Nothing that the log had before the call was unknown to the node at its end. So an answer from memory that is
        made after it is not older than the call.
        """
        self._append([Heartbeat(self.claim.epoch)])

    def resign(self) -> None:
        """End the leadership. Raises as `append_frame` does."""
        if self.leads:
            self._append([Resignation(self.claim.epoch)])

    def _append(self, entries: list[Entry]) -> None:
        """Append entries until all count."""
        self._check()
        data = [encode(entry) for entry in entries]
        for attempt in range(ATTEMPTS):
            try:
                positions = self._log.append(data)
            except AppendUnknown:
                self._tail.read_to_end()
                self._check()
                if attempt == ATTEMPTS - 1:
                    raise
                continue
            self._account(data, positions)
            self._check(entries)
            return

    def _account(self, data: list[bytes], positions: list[int]) -> None:
        """Apply the entries that were stored at `positions`, and all entries before and between them."""
        for each, position in zip(data, positions, strict=True):
            if position < self._tail.position:
                raise EntriesLost(position, f"an append is there, and this node knows all up to {self._tail.position}")
            self._tail.read_to(position)
            self._tail.take(StoredEntry(position, each))

    def _check(self, entries: Sequence[Entry] = ()) -> None:
        """Raise Deposed if another node leads."""
        fold = self._tail.fold
        if fold.leader is None or fold.leader.epoch != self.claim.epoch or fold.leader.node != self.claim.node:
            raise Deposed(fold.epoch, fold.leader.url if fold.leader is not None else "no node")
        if fold.resigned and not any(isinstance(entry, Resignation) for entry in entries):
            raise Deposed(fold.epoch, "no node, after a resignation,")
