"""Reads journal files: header, footer, frames one at a time, and the remains of a damaged tail."""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from escrowmq.journal import format as fmt
from escrowmq.journal.errors import JournalDamaged
from escrowmq.journal.storage import Readable

CHUNK: Final = 1 << 20
"""The size of one read while walking through frames, in bytes."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One intact frame. `payload` holds the records back to back; record i is `payload[offsets[i]:offsets[i + 1]]`."""

    lsn: int
    end_lsn: int
    time_us: int
    payload: memoryview
    offsets: memoryview
    """`count + 1` unsigned 32-bit integers, laid out like the offsets of an Arrow binary array."""
    kinds: memoryview
    head: memoryview
    """The frame's header."""
    body: memoryview
    """Everything behind the header: payloads, offsets and kinds, with padding."""

    @property
    def payload_lsn(self) -> int:
        """The address of `payload[0]`. The address of record i is `payload_lsn + offsets[i]`."""
        return self.lsn + fmt.FRAME_HEADER_SIZE

    def records(self) -> Iterator[tuple[int, int, memoryview]]:
        """Yield LSN, kind and payload of each record, in order."""
        payload, base, start = self.payload, self.lsn + fmt.FRAME_HEADER_SIZE, 0
        for kind, end in zip(self.kinds, self.offsets[1:], strict=True):
            yield base + start, kind, payload[start:end]
            start = end


@dataclass(frozen=True, slots=True)
class Tail:
    """The bytes behind the last intact frame: `size` bytes from `offset` to the last byte that is not zero.

    `later_frame` is the offset of a later frame's header among them, which proves that this is not a torn write; None
    if there is none.
    """

    offset: int
    size: int
    later_frame: int | None


class JournalFile:
    """One segment or snapshot, opened for reading.

    Raises:
        JournalVersionUnknown: The file has a newer format version.
        JournalDamaged: The file header is damaged, or belongs to another file.
        OSError: From the storage.
    """

    def __init__(self, storage: Readable, name: str) -> None:
        self.storage = storage
        self.name = name
        self.header = fmt.read_file_header(name, storage.read(name, 0, fmt.FILE_HEADER_SIZE))
        if fmt.parse_name(name) not in (None, (self.header.type, self.header.lsn)):
            raise JournalDamaged(name, 0, f"the header belongs to another file (LSN {self.header.lsn:#x})")
        self.seed = self.header.seed
        self.origin = self.header.origin
        self._footer: fmt.Footer | None = None
        self._footer_known = False

    def offset_of(self, lsn: int) -> int:
        """Return the file offset of an address."""
        return lsn - self.origin + fmt.FILE_HEADER_SIZE

    def lsn_of(self, offset: int) -> int:
        """Return the address of a file offset."""
        return offset - fmt.FILE_HEADER_SIZE + self.origin

    @property
    def footer(self) -> fmt.Footer | None:
        """The footer, or None if the file is not sealed or its footer is damaged."""
        if not self._footer_known:
            self._footer = self._read_footer()
            self._footer_known = True
        return self._footer

    def _read_footer(self) -> fmt.Footer | None:
        size = self.storage.size(self.name)
        if size < fmt.FILE_HEADER_SIZE + fmt.FOOTER_END_SIZE:
            return None
        end = fmt.read_footer_end(self.storage.read(self.name, size - fmt.FOOTER_END_SIZE, fmt.FOOTER_END_SIZE))
        if end is None or self.offset_of(end[1]) + end[0] != size:
            return None
        return fmt.read_footer(self.storage.read(self.name, size - end[0], end[0]), self.seed)

    def granule(self, lsn: int) -> tuple[int, int]:
        """Return the address of the last indexed frame at or before `lsn`, and that of the next indexed frame.

        The file must be sealed.
        """
        assert self.footer is not None
        index = self.footer.index
        i = bisect_right(index, lsn, key=lambda entry: entry[0])
        start = index[i - 1][0] if i else self.footer.first_lsn
        return start, index[i][0] if i < len(index) else self.footer.end_lsn

    def begins_frame(self, lsn: int) -> bool:
        """Return whether the intact header of a frame is at address `lsn`."""
        head = self.storage.read(self.name, self.offset_of(lsn), fmt.FRAME_HEADER_SIZE)
        return fmt.read_frame_header(memoryview(head), lsn, self.seed) is not None

    def walk(self, lsn: int | None = None, end: int | None = None, *, check: bool = True) -> FrameWalk:
        """Iterate the frames from address `lsn` to `end`.

        `lsn` must be the start of a frame and defaults to the first one. `end` defaults to the end of the intact
        frames. `check` verifies the checksums of the bodies.
        """
        return FrameWalk(self, self.origin if lsn is None else lsn, end, check=check)

    def tail(self, lsn: int) -> Tail:
        """Examine everything from address `lsn` on, where no intact frame begins."""
        start = self.offset_of(lsn)
        last, later, offset, carry = start, None, start, b""
        while data := self.storage.read(self.name, offset, CHUNK):
            if stripped := len(data.rstrip(b"\0")):
                last = offset + stripped
            if later is None:
                later = self._frame_in(carry + data, offset - len(carry), start)
            carry = (carry + data)[-fmt.FRAME_HEADER_SIZE :]
            offset += len(data)
        return Tail(start, last - start, later)

    def _frame_in(self, data: bytes, offset: int, after: int) -> int | None:
        at = data.find(fmt.FRAME_MAGIC)
        while at >= 0:
            place = offset + at
            head = data[at : at + fmt.FRAME_HEADER_SIZE]
            if place > after and fmt.read_frame_header(head, self.lsn_of(place), self.seed):
                return place
            at = data.find(fmt.FRAME_MAGIC, at + 1)
        return None


class FrameWalk:
    """An iterator over frames.

    When it stops, `lsn` is the address where it stopped and `why` the reason: empty if it reached `end`, or nothing
    follows.
    """

    def __init__(self, file: JournalFile, lsn: int, end: int | None, *, check: bool) -> None:
        self.lsn = lsn
        self.why = ""
        self.last: Frame | None = None
        self._file = file
        self.end = end
        self._check = check
        self._window = b""
        self._window_at = 0

    @property
    def offset(self) -> int:
        """The current offset in the file."""
        return self._file.offset_of(self.lsn)

    def __iter__(self) -> Iterator[Frame]:
        while self.end is None or self.lsn < self.end:
            frame = self._next()
            if frame is None:
                return
            if self.end is not None and frame.end_lsn > self.end:
                self.why = f"a frame extends beyond LSN {self.end:#x}, where it should end"
                return
            self.lsn = frame.end_lsn
            self.last = frame
            yield frame

    def _next(self) -> Frame | None:
        head = self._bytes(self.offset, fmt.FRAME_HEADER_SIZE)
        header = fmt.read_frame_header(head, self.lsn, self._file.seed)
        if header is None:
            if any(head) or self.end is not None:
                self.why = "no frame begins here" if len(head) == fmt.FRAME_HEADER_SIZE else "the file ends"
            return None
        size = header.body_size
        body = self._bytes(self.offset + fmt.FRAME_HEADER_SIZE, size)
        if len(body) < size:
            self.why = f"the frame is cut off: {len(body)} of {size} bytes"
            return None
        if self._check and not fmt.body_is_whole(header, body):
            self.why = "the frame's checksum does not match"
            return None
        return _frame(header, head, body)

    def _bytes(self, offset: int, size: int) -> memoryview:
        at = offset - self._window_at
        if at < 0 or at + size > len(self._window):
            self._window = self._file.storage.read(self._file.name, offset, max(size, CHUNK))
            self._window_at, at = offset, 0
        return memoryview(self._window)[at : at + size]


def _frame(header: fmt.FrameHeader, head: memoryview, body: memoryview) -> Frame:
    table = header.payload_size + fmt.pad(header.payload_size)
    kinds = table + 4 * (header.count + 1)
    raw = body[table:kinds]
    if sys.byteorder == "little":
        offsets = raw.cast("I")
    else:
        swapped = array("I", raw.tobytes())
        swapped.byteswap()
        offsets = memoryview(swapped)
    payload, kind = body[: header.payload_size], body[kinds : kinds + header.count]
    return Frame(header.lsn, header.end, header.time_us, payload, offsets, kind, head, body)
