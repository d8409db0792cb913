"""The node's copy of the journal on disk, which follows the log and has the same bytes as all others.

What the files have already is compared with the log, and not written again. Where they differ, the log is right:

- A deposed leader may have written one frame that never counted; it is cut off.
- A leader writes a frame only after the one before it counts. So if more than one frame differs, the log has lost
  frames that counted, and goes on without them. They are kept beside the journal, in files that end with `.diverged`.
- A log that was trimmed meanwhile may begin in the middle of a segment that is here, and a segment may reach into the
  next one that is here. Those have other frames than the log, too, and are kept or cut off in the same way.
- What the files have behind the end of the log stays. The next leader appends its own again.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from itertools import pairwise
from typing import Final, NamedTuple, Protocol

from escrowmq.journal import format as fmt
from escrowmq.journal.frames import Frame, JournalFile
from escrowmq.journal.markers import REPLICATED
from escrowmq.journal.removals import REMOVED, Hole, decode
from escrowmq.journal.storage import Storage
from escrowmq.replica.coverage import LackingPart, OpenSegment, is_torn, lacking_part
from escrowmq.replica.entries import CHUNK_SIZE
from escrowmq.replica.errors import CopyRefused, EntriesLost
from escrowmq.replica.fold import CopyEnd, ReplicatedFrame, SnapshotPiece
from escrowmq.replica.leader import CopiedFrame, CopiedPiece, CopiedSnapshot, CopiedStart
from escrowmq.replica.segment_copy import TEMPORARY, SegmentCopy

DIVERGED: Final = ".diverged"
_EPOCH: Final = struct.Struct("<QQI")
"""In the file `REPLICATED`: the epoch in which the last frame counted, the greatest in which any did, a checksum."""
_UNCOUNTED: Final = 1
"""The frames that a leader may have written and that need not count."""


class CopyEvents(Protocol):
    """What the operator should know."""

    def cut(self, lsn: int, frames: int) -> None:
        """Frames from `lsn` on were cut off because they never counted."""
        ...

    def diverged(self, lsn: int, frames: int, names: list[str]) -> None:
        """The log has other frames than the copy from `lsn` on. Those of the copy were kept in files."""
        ...


class Ahead(NamedTuple):
    """Frames that the copy has behind the end of the log, in the segment with this header. `messages` is the number in
    the segment before.
    """

    header: bytes
    messages: int
    frames: list[Frame]


class DiskCopy:
    """The segments of a data directory. Raises OSError.

    With `passive`, the journal's writer writes the files, and the copy only takes note of what counts.
    """

    def __init__(self, storage: Storage, events: CopyEvents, *, chain_contents: bool = False) -> None:
        self.passive = False
        self.end_lsn = 0
        """The end of what counts and is here."""
        self._storage = storage
        self._events = events
        self._chain_contents = chain_contents
        self._began = False
        """Whether the epochs are noted, as they are before a journal begins on a replicated log."""
        self._epoch, self.greatest_epoch = self._read_epochs()
        self._last_counted = 0
        """The epoch in which the last frame counted that was read; 0 before the first."""
        self._diverged = False
        """Whether the copy's end was cut off since the epoch was noted. The epoch may then be less."""
        self._current: SegmentCopy | None = None
        self._following_lsn: int | None = None
        """Where the segment begins that is in the files behind the current one; None if there is none."""
        self._next: tuple[bytes, int] | None = None
        """The header of a segment that has no frame yet, and the number of messages in the one before."""
        self._holes: list[Hole] = []

    # -- the log

    def segment(self, header: bytes, messages: int) -> None:
        """Begin a segment with its first frame, and seal the one before then. Until then, another segment may take its
        place, and the files may have frames there that the next leader appends again.

        Raises CopyRefused if the files are of another journal.
        """
        start = fmt.read_file_header("an entry of the replicated log", header)
        if self.passive:
            self.end_lsn = max(self.end_lsn, start.lsn)
            return
        if self._current is None and self._next is None:
            self._check_journal(start.journal_id)
        if self._current is not None and self._current.header == header:
            self._next = None
            return
        self.end_lsn = max(self.end_lsn, start.lsn)
        self._next = header, messages

    def _check_journal(self, journal_id: bytes) -> None:
        """Raise CopyRefused if the files are of another journal. If this node began it as the leader of an empty log,
        and none of its frames ever counted, it makes room.
        """
        names = [name for _, name in self._segments()]
        if not names or self._journal(names[0]) == journal_id:
            return
        frames = list(JournalFile(self._storage, names[0]).walk())
        if len(names) > 1 or self.snapshot_lsn or self.greatest_epoch or not self._began or len(frames) > _UNCOUNTED:
            raise CopyRefused(
                f"the data directory has another journal than the replicated log, in {names[0]}; start this node with "
                "an empty data directory, or with another topic or stream"
            )
        self._delete_for_good(names[0])
        if frames:
            self._events.cut(frames[0].lsn, len(frames))

    def _journal(self, name: str) -> bytes:
        return fmt.read_file_header(name, self._storage.read(name, 0, fmt.FILE_HEADER_SIZE)).journal_id

    def _open(self, header: bytes, messages: int) -> SegmentCopy:
        self._seal(messages, header)
        lsn = fmt.read_file_header("an entry of the replicated log", header).lsn
        here = self._header_here(lsn)
        before = self._current
        current = self._current = SegmentCopy(self._storage, header, chain_contents=self._chain_contents)
        self._following_lsn = min((first for first, _ in self._segments() if first > lsn), default=None)
        if here == header:
            return current
        if not here:
            self._make_room(lsn, before.name if before is not None else "")
        if here:
            self._current = SegmentCopy(self._storage, here, chain_contents=self._chain_contents)
            self._diverge()
            self._current = current
        current.create()
        self._delete_torn()
        return current

    def frame(self, frame: ReplicatedFrame) -> None:
        """Add a frame behind the last one."""
        self.end_lsn = frame.lsn + len(frame.data)
        self._last_counted = frame.epoch
        if self.passive:
            self._note_epoch(frame.epoch, exactly=True)
            return
        if self._next is not None:
            opened, self._next = self._next, None
            self._open(*opened)
        current = self._current
        if current is None:
            raise CopyRefused(f"the log has a frame at LSN {frame.lsn:#x} in a segment that it has not begun")
        if self._following_lsn is not None and current.writing and self.end_lsn > self._following_lsn:
            self._diverge()
        if not current.take(frame):
            self._diverge()
            current.take(frame)
        self._note_epoch(frame.epoch)
        self._note_removed(frame.data)

    def close_segment(self, messages: int, end_lsn: int, following: bytes) -> None:
        """Seal the current segment, which ever held so many messages and must end there. `following` is the header of
        the next one, which may begin later.

        Raises EntriesLost.
        """
        current = self._current
        if current is None or current.end_lsn != end_lsn:
            raise EntriesLost(0, f"a segment does not end at LSN {end_lsn:#x}")
        self._seal(messages, following)
        self._current = None

    def snapshot(self, piece: SnapshotPiece) -> None:
        """Add a piece to the file of a snapshot. The whole file replaces older ones.

        A copy that begins to follow in the middle of a snapshot waits for the next one. A copy that reads the log again
        finds older snapshots there than its own one, which alone may cover segments that it has deleted.
        """
        if self.passive or piece.lsn <= self.snapshot_lsn:
            return
        name = fmt.snapshot_name(piece.lsn)
        temporary = name + TEMPORARY
        if not piece.offset:
            self._storage.create(temporary)
        elif temporary not in self._storage.names() or self._storage.size(temporary) != piece.offset:
            return
        self._storage.write(temporary, piece.offset, piece.data)
        if piece.last:
            self._install(temporary, name)

    # -- the files

    def sync(self) -> None:
        """Make everything durable, and delete what the leader has deleted, as far as a snapshot covers it."""
        if self._current is not None:
            self._current.sync()
        if self._holes:
            self._delete()

    def ahead(self) -> Iterator[Ahead]:
        """Yield what the files have behind the end of the log, in order. Segments that were deleted leave gaps."""
        end, before = self.end_lsn, ""
        if self._current is not None:
            frames = self._current.rest()
            end = frames[-1].end_lsn if frames else self._current.end_lsn
            before = self._current.name
            if frames:
                yield Ahead(self._current.header, 0, frames)
        for lsn, name in self._segments():
            if lsn < end or name == before:
                continue
            frames = list(JournalFile(self._storage, name).walk())
            if frames:
                yield Ahead(self._storage.read(name, 0, fmt.FILE_HEADER_SIZE), self._messages(before), frames)
                before = name

    def drop_uncounted(self, epoch: int) -> None:
        """Cut off the frame that this node wrote as a leader and that never counted, if there is one.

        To be called at the end of the log, where `epoch` is the current one. If it is later than that of the copy's
        last frame, another leader has served clients without the frame. More than one frame was lost by the log.
        """
        frames = [frame for part in self.ahead() for frame in part.frames]
        if epoch <= self._epoch or len(frames) != _UNCOUNTED:
            return
        if self._current is not None and self._current.rest():
            self._diverge()
            return
        for lsn, name in self._segments():
            if lsn == frames[0].lsn:
                self._delete_for_good(name)
        self._events.cut(frames[0].lsn, len(frames))

    def note_end(self) -> None:
        """Note the epoch of the last frame, if the files have nothing behind the end of the log.

        After the log has lost claims, the epoch may be less than the one in which the same frame had counted before. To
        be called at the end of the log. Raises OSError.
        """
        if self._last_counted and self._last_counted != self._epoch and not any(self.ahead()):
            self._note_epoch(self._last_counted, exactly=True)

    @property
    def end(self) -> CopyEnd:
        """Where the files end, with what they have behind the end of the log. Raises OSError."""
        end = self.end_lsn
        for part in self.ahead():
            end = part.frames[-1].end_lsn
        return CopyEnd(self._epoch, end)

    def pieces_ahead(self) -> Iterator[CopiedPiece]:
        """Yield what `ahead` yields, as `Leader.restore` takes it."""
        for part in self.ahead():
            yield CopiedStart(part.header, part.messages)
            for frame in part.frames:
                yield CopiedFrame(frame.lsn, bytes(frame.head) + bytes(frame.body))

    def lacking_part(self) -> LackingPart | None:
        """Return what a broker would lack that starts with these files; None if they are whole. Raises OSError.

        A log that was trimmed and has lost its snapshot cannot make a copy whole. Then only a node that has the
        snapshot can lead.
        """
        current, opened = self._current, None
        if current is not None:
            rest = current.rest()
            opened = OpenSegment(current.name, rest[-1].end_lsn if rest else current.end_lsn)
        return lacking_part(self._storage, self._segments(), opened, self.end_lsn, self.snapshot_lsn)

    def newest_snapshot(self) -> CopiedSnapshot | None:
        """Return the newest snapshot, as `Leader.restore` takes it. Raises OSError."""
        lsn = self.snapshot_lsn
        if not lsn:
            return None
        name = fmt.snapshot_name(lsn)
        size = self._storage.size(name)
        pieces = (self._storage.read(name, at, min(CHUNK_SIZE, size - at)) for at in range(0, size, CHUNK_SIZE))
        return CopiedSnapshot(lsn, size, pieces)

    def hand_over(self) -> None:
        """Leave the files to the journal's writer."""
        self.note_end()
        if not self._began and not self._segments():
            self._write_epochs(self._epoch, self.greatest_epoch)
        if self._current is not None:
            self._current.finish()
            self._current = None
        self._next = None
        self.passive = True

    @property
    def snapshot_lsn(self) -> int:
        """The LSN of the newest snapshot; 0 if there is none."""
        return max((lsn for kind, lsn, _ in self._files() if kind == fmt.TYPE_SNAPSHOT), default=0)

    # -- details

    def _read_epochs(self) -> tuple[int, int]:
        if REPLICATED not in self._storage.names():
            return 0, 0
        data = self._storage.read(REPLICATED, 0, _EPOCH.size)
        if len(data) != _EPOCH.size or zlib.crc32(data[:16]) != _EPOCH.unpack(data)[2]:
            return 0, 0  # a node with this copy lets others go first
        self._began = True
        epoch, greatest, _ = _EPOCH.unpack(data)
        return epoch, greatest

    def _note_epoch(self, epoch: int, *, exactly: bool = False) -> None:
        """Note that a frame counts. Frames that the copy had before may have counted in a later epoch.

        With `exactly`, there are none behind the frame.
        """
        exactly |= self._diverged
        self._diverged = False
        if epoch == self._epoch or (epoch < self._epoch and not exactly):
            return
        self._write_epochs(epoch, max(epoch, self.greatest_epoch))

    def _write_epochs(self, epoch: int, greatest: int) -> None:
        numbers = _EPOCH.pack(epoch, greatest, 0)[:-4]
        temporary = REPLICATED + TEMPORARY
        self._storage.create(temporary)
        self._storage.write(temporary, 0, numbers + zlib.crc32(numbers).to_bytes(4, "little"))
        self._storage.sync(temporary)
        self._storage.finish(temporary)
        self._storage.replace(temporary, REPLICATED)
        self._epoch, self.greatest_epoch, self._began = epoch, greatest, True

    def _install(self, temporary: str, name: str) -> None:
        """Let a snapshot take effect, for which the log must be on disk up to its LSN."""
        if self._current is not None:
            self._current.sync()
        self._storage.sync(temporary)
        self._storage.finish(temporary)
        self._storage.replace(temporary, name)
        for kind, _, other in self._files():
            if kind == fmt.TYPE_SNAPSHOT and other != name:
                self._storage.delete(other)
        self._delete_torn()

    def _delete_torn(self) -> None:
        """Delete segments that end before the next one without a footer, as far as a snapshot covers them.

        The node was away while the leader deleted what followed. The log has nothing of it any more, so nothing else
        will complete such a segment.
        """
        covered, segments = self.snapshot_lsn, self._segments()
        current = self._current.name if self._current is not None else ""
        for (_, name), (following, _) in pairwise(segments):
            if following <= covered and name != current and is_torn(self._storage, name, following):
                self._storage.delete(name)

    def _seal(self, messages: int, following: bytes) -> None:
        current = self._current
        if current is None or current.end_lsn == current.first_lsn or current.is_sealed(messages, following):
            return
        if current.rest():
            self._diverge()
        current.seal(messages, following)

    def _diverge(self) -> None:
        """Remove what the files have behind the end of the current segment, or keep it elsewhere."""
        current = self._current
        assert current is not None
        rest = len(current.rest())
        later = [name for first, name in self._segments() if first > current.first_lsn]
        self._set_aside(current.end_lsn, rest, (current.name, current.tail()) if rest else None, later)
        current.cut()

    def _make_room(self, lsn: int, before: str) -> None:
        """Remove, or keep elsewhere, what the files have from `lsn` on, if the segment before has frames there.

        `before` is the segment that the log has before `lsn`; it ends there. The log may have been trimmed since it
        went on without frames that this node has, so that the segment before was not compared with it.
        """
        name = max((name for first, name in self._segments() if first < lsn), default=before)
        if name == before:
            return
        file = JournalFile(self._storage, name)
        if file.footer is not None and file.footer.end_lsn <= lsn:
            return
        frames = list(file.walk())
        beyond = [frame for frame in frames if frame.end_lsn > lsn]
        if not beyond:
            return
        later = [other for first, other in self._segments() if first > lsn]
        if beyond[0].lsn != lsn:
            self._set_aside(file.header.lsn, 0, None, [name, *later])
            return
        offset = file.offset_of(lsn)
        tail = self._storage.read(name, offset, beyond[-1].end_lsn - lsn)
        self._set_aside(lsn, len(beyond), (name, tail), later)
        self._storage.truncate(name, offset)
        self._storage.sync(name)
        self._storage.finish(name)

    def _set_aside(self, lsn: int, frames: int, tail: tuple[str, bytes] | None, names: list[str]) -> None:
        """Remove segments, or keep them elsewhere, together with the end of a segment that the caller cuts off.

        `frames` are those in `tail`, which is the name of that segment, and its end. `lsn` is where the log differs.
        """
        frames += sum(1 for name in names for _ in JournalFile(self._storage, name).walk())
        keep = frames > _UNCOUNTED
        kept = [name + DIVERGED for name in names]
        if keep and tail is not None:
            kept.insert(0, tail[0] + DIVERGED)
            self._storage.create(kept[0])
            self._storage.write(kept[0], 0, tail[1])
            self._storage.sync(kept[0])
            self._storage.finish(kept[0])
        for name in names:
            if keep:
                self._storage.replace(name, name + DIVERGED)
            else:
                self._delete_for_good(name)
        for kind, at, name in self._files():
            if kind == fmt.TYPE_SNAPSHOT and at > lsn:
                self._delete_for_good(name)
        self._following_lsn = None
        self._diverged = True
        if keep:
            self._events.diverged(lsn, frames, kept)
        elif frames:
            self._events.cut(lsn, frames)

    def _delete_for_good(self, name: str) -> None:
        """Delete a file with something that never counted. It must not come back after a power failure, when clients
        have been served without it; a name may come back, so the content goes first.
        """
        self._storage.truncate(name, fmt.FILE_HEADER_SIZE)
        self._storage.sync(name)
        self._storage.finish(name)
        self._storage.delete(name)

    def _note_removed(self, data: bytes) -> None:
        """Take the holes from a frame's records about deleted segments."""
        _, _, _, lsn, time_us, size, count, body_crc, header_crc = fmt.FRAME_HEADER.unpack_from(data)
        header = fmt.FrameHeader(lsn, time_us, size, count, body_crc, header_crc)
        table = fmt.FRAME_HEADER_SIZE + size + fmt.pad(size)
        kinds = data[table + 4 * (header.count + 1) :][:count]
        place = kinds.rfind(REMOVED)
        if place >= 0:
            offsets = memoryview(data)[table + 4 * place : table + 4 * place + 8]
            begin, end = int.from_bytes(offsets[:4], "little"), int.from_bytes(offsets[4:], "little")
            try:
                self._holes = decode(data[fmt.FRAME_HEADER_SIZE :][begin:end])
            except ValueError as error:
                raise CopyRefused(f"a record of removed segments is malformed: {error}") from error

    def _delete(self) -> None:
        covered = self.snapshot_lsn
        holes = [hole for hole in self._holes if hole.end_lsn <= covered]
        for lsn, name in self._segments():
            if any(hole.first_lsn <= lsn < hole.end_lsn for hole in holes):
                self._storage.delete(name)
        self._holes = [hole for hole in self._holes if hole.end_lsn > covered]

    def _header_here(self, lsn: int) -> bytes:
        """Return the header of the file of the segment at `lsn`; empty if there is none."""
        try:
            return self._storage.read(fmt.segment_name(lsn), 0, fmt.FILE_HEADER_SIZE)
        except FileNotFoundError:
            return b""

    def _messages(self, name: str) -> int:
        footer = JournalFile(self._storage, name).footer if name else None
        return footer.messages if footer is not None else 0

    def _segments(self) -> list[tuple[int, str]]:
        return sorted((lsn, name) for kind, lsn, name in self._files() if kind == fmt.TYPE_SEGMENT)

    def _files(self) -> list[tuple[int, int, str]]:
        found = []
        for name in self._storage.names():
            parsed = fmt.parse_name(name)
            if parsed is not None:
                found.append((*parsed, name))
        return found
