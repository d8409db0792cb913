"""Leads: claims an epoch, appends the journal's segments and frames, and proves that it still leads.

The answer to an append is trusted only together with its positions. If they follow the last entry that this node knows,
no other entry lies between, so no other claim does. Otherwise, or without an answer, the node reads what is there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import count, islice, pairwise
from typing import Final, NamedTuple, TypeAlias

from escrowmq.journal.format import read_file_header
from escrowmq.replica.entries import (
    BLANK,
    CHUNK_SIZE,
    Entry,
    FrameChunk,
    Heartbeat,
    LeaderClaim,
    LiveMap,
    LossNotice,
    MappedSegment,
    NodeReport,
    Resignation,
    SegmentStart,
    SnapshotChunk,
    Stamp,
    TakeOverReason,
    chunks,
    encode,
)
from escrowmq.replica.errors import AppendUnknown, Deposed, EntriesLost
from escrowmq.replica.fold import CopyEnd
from escrowmq.replica.log import ReplicatedLog, StoredEntry
from escrowmq.replica.tail import LogTail

ATTEMPTS: Final = 5
"""How often an append is repeated whose answer did not come."""
MOST_MAPPED: Final = 20_000
"""The most segments of a map, whose entry every engine takes. With more, an empty node copies the whole log."""
GROUP: Final = 32
"""The most chunks of a frame or a snapshot that are appended at once."""


class CopiedStart(NamedTuple):
    """The header of a segment in the node's own copy, and the number of messages that the one before ever held."""

    header: bytes
    messages: int


class CopiedFrame(NamedTuple):
    """A frame in the node's own copy."""

    lsn: int
    data: bytes


CopiedPiece: TypeAlias = CopiedStart | CopiedFrame


class CopiedSnapshot(NamedTuple):
    """The file of the newest snapshot in the node's own copy, in pieces of at most the size of a chunk."""

    lsn: int
    size: int
    pieces: Iterable[bytes]


class _Sent(NamedTuple):
    """Entries that were stamped and sent, and a function that waits for their positions."""

    entries: Sequence[Entry]
    data: list[bytes]
    positions: Callable[[], list[int]]


class Leader:
    """A node that wants to lead. Every method blocks, and raises OSError if the log cannot be reached.

    `node` names the machine for operators. `make_id` returns 16 random bytes, so that no two claims are equal. The copy
    of `tail` gets the node's own frames, too, once they count.
    """

    def __init__(
        self,
        log: ReplicatedLog,
        tail: LogTail,
        node: str,
        url: str,
        make_id: Callable[[], bytes],
        *,
        chunk_size: int = CHUNK_SIZE,
    ) -> None:
        self._log = log
        self._tail = tail
        self._node = node
        self._url = url
        self._make_id = make_id
        self._chunk_size = chunk_size
        self.claim = LeaderClaim(BLANK, b"", 0, node, url)
        self.refusal = ""
        """Why the log did not acknowledge the last claim; empty if it did."""

    @property
    def leads(self) -> bool:
        """Whether the node leads, as far as it knows."""
        return bool(self.claim.id) and self._tail.fold.leads(self.claim)

    def take_over(self, known_epoch: int = 0, counted: int | None = None) -> bool:
        """Claim an epoch, and return whether the claim counts. The node then has every frame that counts.

        `counted` is `LogTail.counted` from when the caller found that no node leads. If this call reads that more has
        counted since, as a claim of another node, it claims nothing and returns False.

        `known_epoch` is the greatest one in which a frame counted that this node has ever had. The log may have lost
        it, and must not get the same one again, because copies are compared by epochs.

        If the node's own copy has more frames than count, `restore` must follow. If the log does not answer, the claim
        may come to count later. `leads` is true as soon as the node has read it.
        Raises EntriesLost.
        """
        self._tail.read_to_end()
        self._tail.verify()
        if counted is not None and self._tail.counted != counted:
            return False
        fold = self._tail.fold
        known = max(fold.epoch, known_epoch, *(end.epoch for end in fold.notices.values()))
        stamp = Stamp(known + 1, fold.chain, self._tail.position)
        self.claim = LeaderClaim(stamp, self._make_id(), fold.next_lsn, self._node, self._url)
        try:
            position = self._log.append([encode(self.claim)])[0]
        except AppendUnknown as error:
            self.refusal = str(error)
            self._tail.read_to_end()
        else:
            self.refusal = ""
            self._check_position(position)
            self._tail.read_to(position + 1)
        return self.leads

    def restore(self, pieces: Iterable[CopiedPiece], snapshot: CopiedSnapshot | None = None) -> int:
        """Append again what the log has lost and this node's copy has: headers and frames, in order, and the snapshot.

        `pieces` may begin earlier. What the log has is left out. An empty log takes a journal that begins anywhere, and
        one without its deleted segments. `snapshot` is appended if the log has gaps that no snapshot in it covers.
        Returns the number of frames that were appended. Raises as `append_frame` does.
        """
        restored = 0
        start: CopiedStart | None = None
        for piece in pieces:
            if isinstance(piece, CopiedStart):
                start = piece
                continue
            if piece.lsn < self._tail.fold.next_lsn:
                continue
            if start is not None and start.header != self._tail.fold.segment:
                self._begin_segment(start.header, start.messages)
            self.append_frame(piece.lsn, [piece.data])
            restored += 1
        if snapshot is not None and self._tail.fold.lacks_snapshot:
            self.put_snapshot(*snapshot)
        return restored

    def begin_segment(self, header: bytes, messages: int = 0) -> None:
        """Append the header of a segment behind the last frame, and return when it counts. Raises as `append_frame`
        does.

        `messages` is the number that the segment before ever held.
        """
        lsn, end = read_file_header("a new segment", header).lsn, self._tail.fold.next_lsn
        if lsn != end and self.leads:
            raise EntriesLost(self._tail.position, f"its frames end at LSN {end}, and a segment shall begin at {lsn}")
        self._begin_segment(header, messages)

    def _begin_segment(self, header: bytes, messages: int) -> None:
        end = self._tail.fold.next_lsn
        self._append([SegmentStart(BLANK, end, header, messages, self._node, self._url)])
        if self._tail.fold.segment != header:
            raise EntriesLost(self._tail.position, "the log has no place for the segment that this node began")

    def append_frame(self, lsn: int, frame: Sequence[bytes]) -> None:
        """Append a frame of the journal, in parts, and return when it counts.

        Raises:
            Deposed: Another node leads.
            AppendUnknown: The log did not answer, also not when it was asked again. The frame may come to count.
            EntriesLost: The log lost entries.
        """
        self.begin_frame(lsn, frame)()

    def begin_frame(self, lsn: int, frame: Sequence[bytes]) -> Callable[[], None]:
        """Begin to append a frame, and return a function that does the rest of `append_frame`. Raises as that does."""
        pieces = chunks(BLANK, lsn, frame, self._chunk_size)
        finish = self._begin(list(islice(pieces, GROUP)))
        return partial(self._finish_frame, lsn + sum(map(len, frame)), finish, pieces)

    def _finish_frame(self, end: int, finish: Callable[[], None], pieces: Iterator[FrameChunk]) -> None:
        finish()
        while group := list(islice(pieces, GROUP)):
            self._append(group)
        if self._tail.fold.next_lsn != end:
            raise EntriesLost(self._tail.position, f"its frames end at LSN {self._tail.fold.next_lsn}, not at {end}")

    def put_snapshot(self, lsn: int, size: int, pieces: Iterable[bytes]) -> None:
        """Append the file of a snapshot, which has `size` bytes in pieces of at most the size of a chunk.

        Snapshots count in the order of their LSNs. Between two pieces, other entries may be appended. Raises as
        `append_frame` does.
        """
        offset = 0
        for piece in pieces:
            self.put_piece(lsn, size, offset, piece)
            offset += len(piece)

    def put_piece(self, lsn: int, size: int, offset: int, piece: bytes) -> None:
        """Append one piece of the file of a snapshot. Raises as `append_frame` does."""
        self._append([SnapshotChunk(BLANK, lsn, size, offset, piece)])
        whole = self._tail.fold.snapshot
        if offset + len(piece) == size and (whole is None or whole.lsn < lsn):
            raise EntriesLost(self._tail.position, f"the snapshot up to LSN {lsn} is not whole")

    def trim(self, oldest_lsn: int) -> int:
        """Delete from the log what no reader needs. `oldest_lsn` is where the oldest segment begins that has messages.

        The log then begins with a segment that counts, which is not newer than that one and than the newest snapshot.
        Returns the position where it begins.
        """
        begin = self._log.begin()
        snapshot = self._tail.fold.snapshot
        if snapshot is None:
            return begin
        places = [
            place.position
            for place in self._tail.segments
            if place.lsn <= min(oldest_lsn, snapshot.lsn) and place.position <= snapshot.position
        ]
        if not places or places[-1] <= begin:
            return begin
        self._log.trim(places[-1])
        self._tail.forget(places[-1])
        return places[-1]

    def prove(self, *, leaving: bool = False) -> None:
        """Return if the node still led after this call had begun. Raises as `append_frame` does.

        Nothing that the log had before the call was unknown to the node at its end. So an answer from memory that is
        made after it is not older than the call. With `leaving`, other nodes learn that this one stops in order, and
        wait until it resigns.
        """
        self._append([Heartbeat(BLANK, leaving)])

    def resign(self) -> None:
        """End the leadership. If another node leads, it has ended. Raises as `append_frame` does, but not Deposed."""
        if self.leads:
            with contextlib.suppress(Deposed):  # also if the log has the resignation, and its answer was lost
                self._append([Resignation(BLANK)])

    def give_notice(self, copy: CopyEnd) -> None:
        """Say that the log has lost entries, and where this node's copy ends. Any node may do this.

        Raises AppendUnknown.
        """
        fold = self._tail.fold
        stamp = Stamp(fold.epoch, fold.chain, self._tail.position)
        self._log.append([encode(LossNotice(stamp, self._node, *copy))])

    def report(self, lsn: int, time_ms: int, reason: TakeOverReason = TakeOverReason.NONE, took_ms: int = 0) -> int:
        """Show operators how far this node has followed, and with `reason` that it has taken over. Any node may do so.

        Returns the position of the report. Raises AppendUnknown.
        """
        stamp = Stamp(self._tail.fold.epoch, self._tail.fold.chain, self._tail.position)
        report = NodeReport(stamp, self._node, self._url, lsn, time_ms, reason, took_ms, self._tail.fold.map)
        return self._log.append([encode(report)])[0]

    def catch_up(self, lsn: int, time_ms: int) -> None:
        """Read everything that the log had when this was called. Any node may do so.

        The end that the log names may be older, so a report is appended, and read back. Raises AppendUnknown,
        EntriesLost and OSError.
        """
        position = self.report(lsn, time_ms)
        self._check_position(position)
        self._tail.read_to(position + 1)

    def report_place(self, time_ms: int) -> None:
        """Report as the leader. Raises AppendUnknown."""
        self.report(self._tail.fold.next_lsn, time_ms)

    def put_map(self, living: Collection[int]) -> None:
        """Append the map of the segments that the newest snapshot needs. `living` are the LSNs at which segments begin
        that have living messages. Raises as `append_frame` does.

        There is none if the place of such a segment is not known.
        """
        snapshot, places = self._tail.fold.snapshot, self._tail.segments
        if snapshot is None or len(places) > MOST_MAPPED:
            return
        begun = [place for place in places if place.position <= snapshot.position]
        if not begun:
            return
        last = MappedSegment(*begun[-1], self._tail.position)
        needed = [MappedSegment(*place, after.position) for place, after in pairwise(begun) if place.lsn in living]
        if len(needed) == sum(lsn < last.lsn for lsn in living):
            self._append([LiveMap(BLANK, snapshot.position, (*needed, last))])

    def _append(self, entries: Sequence[Entry]) -> None:
        """Stamp entries, and append them until all count."""
        self._begin(entries)()

    def _begin(self, entries: Sequence[Entry]) -> Callable[[], None]:
        """Stamp entries and send them, and return a function that waits until all count."""
        self._check()
        return partial(self._finish, entries, self._send(entries))

    def _send(self, entries: Sequence[Entry]) -> _Sent:
        stamp = Stamp(self.claim.stamp.epoch, self._tail.fold.chain, self._tail.position)
        stamped = [replace(entry, stamp=stamp) for entry in entries]
        data = [encode(entry) for entry in stamped]
        return _Sent(stamped, data, self._log.send(data))

    def _finish(self, entries: Sequence[Entry], sent: _Sent) -> None:
        for attempts in count(1):
            try:
                positions = sent.positions()
            except AppendUnknown:
                self._tail.verify()  # the append may be where the log has lost entries
                self._tail.read_to_end()
                self._check()
                if attempts == ATTEMPTS:
                    raise
                sent = self._send(entries)
                continue
            except OSError:  # the log refuses the entries, and may take those of another leader
                self._tail.read_to_end()
                self._check()
                raise
            self._account(sent.entries, sent.data, positions)
            self._check(entries)
            return

    def _account(self, entries: Sequence[Entry], data: list[bytes], positions: list[int]) -> None:
        """Apply the entries that were stored at `positions`, and all entries before and between them."""
        for entry, each, position in zip(entries, data, positions, strict=True):
            self._check_position(position)
            self._tail.read_to(position)
            self._tail.take(StoredEntry(position, each), entry)

    def _check_position(self, position: int) -> None:
        if position < self._tail.position:
            raise EntriesLost(position, f"an append is there, and this node knows all up to {self._tail.position}")

    def _check(self, entries: Sequence[Entry] = ()) -> None:
        """Raise Deposed if another node leads, and EntriesLost if the log lacks what this one has appended."""
        fold = self._tail.fold
        if not self.claim.id or fold.claim_id != self.claim.id:
            raise Deposed(fold.epoch, fold.leader.url if fold.leader is not None else "no node")
        if fold.hole:
            raise EntriesLost(self._tail.position, "entries of this node before the last one are missing")
        if fold.notices:
            nodes = ", ".join(sorted(fold.notices))
            raise EntriesLost(self._tail.position, f"{nodes} found that entries of this node are missing")
        if fold.resigned and not any(isinstance(entry, Resignation) for entry in entries):
            raise Deposed(fold.epoch, "no node, after a resignation,")
