"""Read a journal as records that can be changed, and write them again with valid checksums and addresses."""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

from escrowmq.core.records.branches import ITEM, PREPARE, PUBLICATION, Item, decode_decide, decode_heuristic
from escrowmq.core.records.commits import decode_commit
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.reservations import decode_held
from escrowmq.journal import removals
from escrowmq.journal.digests import of_parts
from escrowmq.journal.format import (
    FRAME_HEADER_SIZE,
    LINK_SIZE,
    TYPE_SEGMENT,
    TYPE_SNAPSHOT,
    FileHeader,
    body_size,
    pack_frame,
    segment_name,
    snapshot_name,
)
from escrowmq.journal.reader import JournalReader
from escrowmq.journal.removals import Hole
from escrowmq.journal.writer import FooterBuilder

_U64 = struct.Struct("<Q")
_DIGESTED = -2
"""The address of a digest that is right in the new journal."""
_COPY_BYTES = 24
_COPY_ADDRESS = 12
_STATE_BYTES = 28


@dataclass(slots=True)
class Record:
    """A record of a journal. `lsn` is its address in the original journal, -1 for a new record.

    `shifts` are pairs (offset, bytes): what was at or after this offset in the original payload is now further behind.
    """

    kind: int
    payload: bytes
    lsn: int = -1
    shifts: list[tuple[int, int]] = field(default_factory=list)

    def twin(self) -> Record:
        """Return a copy of this record as a new one."""
        return Record(self.kind, self.payload)


@dataclass(slots=True)
class Frame:
    """A frame of a journal, with its original addresses."""

    lsn: int
    end: int
    time_us: int
    records: list[Record]
    begins_segment: bool = False
    link: bytes = bytes(LINK_SIZE)
    """The link in the header of the segment that it begins."""


@dataclass(slots=True)
class Snapshot:
    lsn: int
    created_us: int
    frames: list[Frame]


@dataclass(slots=True)
class Copy:
    """A whole journal in memory."""

    journal_id: bytes
    frames: list[Frame]
    snapshots: list[Snapshot]
    digested: bool = False
    """Whether `write` makes the digests of frames right again, as somebody would who writes the whole log anew."""

    def twin(self) -> Copy:
        """Return a copy that can be changed independently."""
        return Copy(self.journal_id, [_twin(frame) for frame in self.frames], self.snapshots, self.digested)

    def records(self, *kinds: int) -> list[tuple[Frame, int]]:
        """Return the places (frame, index in it) of all records of these kinds; of all records without an argument."""
        return [
            (frame, i)
            for frame in self.frames
            for i, record in enumerate(frame.records)
            if not kinds or record.kind in kinds
        ]

    def write(self, folder: Path) -> None:
        """Write the journal to `folder`, in place of the files there. Addresses in records follow what moved."""
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        frames = [frame for frame in self.frames if frame.records]
        places = _Places(frames)
        if self.digested:
            _digest(frames, places)
        begin = 0
        link = bytes(LINK_SIZE)
        if places.frame(frames[0].lsn):
            link = frames[0].link
        for i, frame in enumerate(frames):
            if i and (frame.begins_segment or _begins(self.frames, frames[i - 1], frame)):
                link = self._segment(folder, frames[begin:i], places, link)
                begin = i
                if places.frame(frames[i - 1].end) < places.frame(frame.lsn):
                    link = frame.link  # that of a segment that does not exist any more
        self._segment(folder, frames[begin:], places, link)
        for snapshot in self.snapshots:
            header = FileHeader(TYPE_SNAPSHOT, self.journal_id, places.frame(snapshot.lsn), snapshot.created_us)
            (folder / snapshot_name(header.lsn)).write_bytes(_file(header, snapshot.frames, places)[0])

    def _segment(self, folder: Path, frames: list[Frame], places: _Places, link: bytes) -> bytes:
        """Write a segment. Returns the link to it."""
        first = places.frame(frames[0].lsn)
        header = FileHeader(TYPE_SEGMENT, self.journal_id, first, frames[0].time_us, link=link)
        data, chain = _file(header, frames, places)
        (folder / segment_name(first)).write_bytes(data)
        return chain[:LINK_SIZE]


def read(folder: Path) -> Copy:
    """Read a journal without damage."""
    reader = JournalReader.open(folder)
    frames: list[Frame] = []
    journal_id = b""
    for name in reader.names(TYPE_SEGMENT):
        file = reader.file(name)
        for nth, frame in enumerate(file.walk(end=file.footer.end_lsn if file.footer else None)):
            records = [Record(kind, bytes(payload), lsn) for lsn, kind, payload in frame.records()]
            frames.append(Frame(frame.lsn, frame.end_lsn, frame.time_us, records, nth == 0, file.header.link))
        journal_id = file.header.journal_id
    snapshots = []
    for name in reader.names(TYPE_SNAPSHOT):
        file = reader.file(name)
        found = [
            Frame(frame.lsn, frame.end_lsn, frame.time_us, [Record(k, bytes(p), lsn) for lsn, k, p in frame.records()])
            for frame in file.walk()
        ]
        snapshots.append(Snapshot(file.header.lsn, file.header.created_us, found))
    reader.close()
    return Copy(journal_id, frames, snapshots)


class _Places:
    """Where the frames and records of the original journal are in the new one."""

    def __init__(self, frames: list[Frame]) -> None:
        self._frames: dict[int, int] = {}
        self._records: list[tuple[int, int, Record]] = []
        end = frames[0].lsn
        before = frames[0].lsn
        for frame in frames:
            if frame.begins_segment and frame.lsn > before:
                end = max(end, frame.lsn)  # a gap, which a compaction has left
            self._frames[frame.lsn] = end
            at = end + FRAME_HEADER_SIZE
            for record in frame.records:
                if record.lsn >= 0:
                    self._records.append((record.lsn, at, record))
                at += len(record.payload)
            end += FRAME_HEADER_SIZE + body_size(at - end - FRAME_HEADER_SIZE, len(frame.records))
            before = frame.end
            self._frames[frame.end] = end
        self._end = (before, end)
        self._records.sort(key=lambda each: each[:2])
        self._lsns = [lsn for lsn, _, _ in self._records]

    def frame(self, lsn: int) -> int:
        """The new address of the frame that began, or ended, at `lsn`."""
        return self._end[1] if lsn > self._end[0] else self._frames.get(lsn, lsn)

    def block(self, lsn: int) -> int:
        """The new address of what was at `lsn` inside a record."""
        i = bisect_right(self._lsns, lsn) - 1
        if i < 0:
            return lsn
        old, new, record = self._records[i]
        offset = lsn - old
        if offset >= len(record.payload) - sum(by for _, by in record.shifts):
            return lsn
        return new + offset + sum(by for at, by in record.shifts if offset >= at)


def _begins(every: list[Frame], before: Frame, frame: Frame) -> bool:
    """Whether a segment begins between two frames that are left: its first frame may have been dropped."""
    return any(before.lsn < each.lsn <= frame.lsn and each.begins_segment for each in every)


def _twin(frame: Frame) -> Frame:
    records = [Record(each.kind, each.payload, each.lsn, list(each.shifts)) for each in frame.records]
    return Frame(frame.lsn, frame.end, frame.time_us, records, frame.begins_segment, frame.link)


def _file(header: FileHeader, frames: list[Frame], places: _Places) -> tuple[bytes, bytes]:
    """Return the bytes of a file, and its digest in the chain."""
    footer = FooterBuilder(header)
    pieces = [header.pack()]
    for frame in frames:
        payloads = [_moved(record, places) for record in frame.records]
        offsets = array("I", [0])
        for payload in payloads:
            offsets.append(offsets[-1] + len(payload))
        kinds = bytes(record.kind for record in frame.records)
        parts = pack_frame(footer.end_lsn, frame.time_us, payloads, offsets, kinds, header.seed)
        size = sum(map(len, parts))
        footer.add(footer.end_lsn, footer.end_lsn + size, frame.time_us, len(kinds), parts)
        pieces += parts
    sealed = footer.build(0)
    pieces.append(sealed.pack(header.seed))
    return b"".join(pieces), sealed.chain


def digest_of(frame: Frame) -> bytes:
    """Return the payload of the digest of a frame whose records keep their addresses."""
    payloads = [record.payload for record in frame.records]
    offsets, marks = array("I", accumulate(map(len, payloads), initial=0)), array("I")
    kinds = bytes(record.kind for record in frame.records)
    parts = pack_frame(frame.lsn, frame.time_us, payloads, offsets, kinds, 0, marks)
    return of_parts(parts, marks, strong=False)


def _digest(frames: list[Frame], places: _Places) -> None:
    """Make the digests of frames right, as far as they keep their length."""
    past = b""
    for frame in frames:
        last = frame.records[-1]
        if last.kind == Kind.DIGEST and len(last.payload) == len(past):
            last.payload, last.lsn = past, _DIGESTED
        moved = [Record(record.kind, _moved(record, places)) for record in frame.records]
        past = digest_of(Frame(places.frame(frame.lsn), 0, frame.time_us, moved))


def _moved(record: Record, places: _Places) -> bytes:
    if record.lsn == _DIGESTED:
        return record.payload
    if record.kind == Kind.DIGEST and len(record.payload) >= _U64.size:
        (lsn,) = _U64.unpack_from(record.payload)
        return _U64.pack(places.frame(lsn)) + record.payload[_U64.size :]
    if record.kind == Kind.REMOVED and record.lsn >= 0:
        holes = removals.decode(record.payload)
        return removals.encode([Hole(places.frame(first), places.frame(end), link) for first, end, link in holes])
    at = list(addresses(record.kind, record.payload))
    if not at:
        return record.payload
    data = bytearray(record.payload)
    for place in at:
        _U64.pack_into(data, place, places.block(_U64.unpack_from(data, place)[0]))
    return bytes(data)


def addresses(kind: int, payload: bytes) -> Iterator[int]:
    """The offsets at which a record has the address of a block in another record."""
    if kind == Kind.PLACED:
        yield 4 + 12 * int.from_bytes(payload[:4], "little")
    elif kind == Kind.READDRESSED:
        yield len(payload) - 8
    elif kind in (Kind.COMMIT, Kind.HEURISTIC, Kind.DECIDE):
        for what, at, part in operations_of(kind, payload):
            for place in addresses(what, bytes(part)):
                yield at + place
    elif kind == Kind.HELD:
        held = decode_held(payload)
        end = len(payload) - len(held.user.encode("utf-8", "surrogatepass"))
        for i in range(len(held.copies)):
            yield end - _COPY_BYTES * (len(held.copies) - i) + _COPY_ADDRESS
    elif kind == Kind.QUEUE_STATE:
        (number,) = struct.unpack_from("<I", payload, 20)
        yield from range(_STATE_BYTES + 8 * number, _STATE_BYTES + 16 * number, 8)
    elif kind == Kind.PREPARE:
        for item, at, _ in items_of(payload):
            if item == Item.ADDRESSED_RUN:
                yield at + PUBLICATION.size + 4 * PUBLICATION.unpack_from(payload, at)[1]


def operations_of(kind: int, payload: bytes) -> list[tuple[int, int, bytes]]:
    """The operations of a COMMIT, HEURISTIC or DECIDE record as (kind, offset, payload)."""
    if kind == Kind.COMMIT:
        found = list(decode_commit(payload)[1])
    elif kind == Kind.HEURISTIC:
        found = list(decode_heuristic(payload)[2])
    else:
        found = [each for _, operations in decode_decide(payload).committed for each in operations]
    return [(int(what), at, bytes(part)) for what, at, part in found]


def items_of(payload: bytes) -> Iterator[tuple[int, int, int]]:
    """The items of a PREPARE record as (kind, offset, size)."""
    *_, xid, owner, vhost, items = PREPARE.unpack_from(payload)
    at = PREPARE.size + xid + owner + vhost
    for _ in range(items):
        kind, size = ITEM.unpack_from(payload, at)
        at += ITEM.size
        yield kind, at, size
        at += size
