"""Reading journal files: their header and footer, their frames one by one, and what a broken tail still holds."""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from escrowmq.journal import format as fmt
from escrowmq.journal.errors import JournalDamaged
from escrowmq.journal.storage import Storage

CHUNK: Final = 1 << 20
"""Bytes of one read while walking."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One whole frame. `payload` holds the records back to back; record i lies at `offsets[i]:offsets[i + 1]`."""

    lsn: int
    end_lsn: int
    time_us: int
    payload: memoryview
    offsets: memoryview
    """`count + 1` unsigned integers of 32 bits; the layout of an Arrow binary array's offsets."""
    kinds: memoryview

    @property
    def payload_lsn(self) -> int:
        """The address of `payload[0]`; adding `offsets[i]` gives that of record i."""
        return self.lsn + fmt.FRAME_HEADER_SIZE

    def records(self) -> Iterator[tuple[int, int, memoryview]]:
        """(LSN of the payload, kind, payload) of each record, in order."""
        payload, base, start = self.payload, self.lsn + fmt.FRAME_HEADER_SIZE, 0
        for kind, end in zip(self.kinds, self.offsets[1:], strict=True):
            yield base + start, kind, payload[start:end]
            start = end


@dataclass(frozen=True, slots=True)
class Tail:
    """What lies behind the last whole frame: `size` bytes from `offset` up to the last one that is not zero.

    `later_frame`: where in it the header of a later frame stands, which proves that it is no torn write; None if
    nowhere.
    """

    offset: int
    size: int
    later_frame: int | None


class JournalFile:
    """One segment or snapshot, opened for reading. Raises what `format.read_file_header` raises, and OSError."""

    def __init__(self, storage: Storage, name: str) -> None:
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
        """The byte in the file that has this address."""
        return lsn - self.origin + fmt.FILE_HEADER_SIZE

    def lsn_of(self, offset: int) -> int:
        """The address of a byte in the file."""
        return offset - fmt.FILE_HEADER_SIZE + self.origin

    @property
    def footer(self) -> fmt.Footer | None:
        """The footer, if the file is sealed and it is whole."""
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
        """Of a sealed file: the addresses of the last indexed frame at or before `lsn`, and of the next indexed one."""
        assert self.footer is not None
        index = self.footer.index
        i = bisect_right(index, lsn, key=lambda entry: entry[0])
        start = index[i - 1][0] if i else self.footer.first_lsn
        return start, index[i][0] if i < len(index) else self.footer.end_lsn

    def walk(self, lsn: int | None = None, end: int | None = None, *, check: bool = True) -> FrameWalk:
        """The frames from address `lsn` on (the start of a frame; default: the first) up to `end` (default: as far as
        whole).
        """
        return FrameWalk(self, self.origin if lsn is None else lsn, end, check=check)

    def tail(self, lsn: int) -> Tail:
        """Look through everything from address `lsn` on, where no whole frame begins."""
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
    """Iterates frames. Afterwards `lsn` is where it stopped and `why` says why ("" for: at `end`, or nothing
    follows).
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
        """Where in the file it stands."""
        return self._file.offset_of(self.lsn)

    def __iter__(self) -> Iterator[Frame]:
        while self.end is None or self.lsn < self.end:
            frame = self._next()
            if frame is None:
                return
            if self.end is not None and frame.end_lsn > self.end:
                self.why = f"a frame reaches beyond the end at LSN {self.end:#x}"
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
            self.why = f"the frame has {len(body)} bytes of {size}"
            return None
        if self._check and not fmt.body_is_whole(header, body):
            self.why = "the checksum of the frame does not match"
            return None
        return _frame(header, body)

    def _bytes(self, offset: int, size: int) -> memoryview:
        at = offset - self._window_at
        if at < 0 or at + size > len(self._window):
            self._window = self._file.storage.read(self._file.name, offset, max(size, CHUNK))
            self._window_at, at = offset, 0
        return memoryview(self._window)[at : at + size]


def _frame(header: fmt.FrameHeader, body: memoryview) -> Frame:
    table = header.payload_size + fmt.pad(header.payload_size)
    kinds = table + 4 * (header.count + 1)
    raw = body[table:kinds]
    if sys.byteorder == "little":
        offsets = raw.cast("I")
    else:
        swapped = array("I", raw.tobytes())
        swapped.byteswap()
        offsets = memoryview(swapped)
    return Frame(
        header.lsn, header.end, header.time_us, body[: header.payload_size], offsets, body[kinds : kinds + header.count]
    )
