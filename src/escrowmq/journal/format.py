"""The bytes of a journal file, version 1. `docs/internals/journal.md` describes them; a test compares the two.

A file is: file header, frames, then (once sealed) footer. All integers are little-endian. Frames begin on multiples of
eight bytes. A frame's records lie column by column: payloads back to back, then their offsets, then their kinds; the
offsets have the layout of an Arrow binary array, so that bulk readers need not walk them.
"""

from __future__ import annotations

import struct
import sys
import zlib
from array import array
from dataclasses import dataclass
from typing import Final

from escrowmq.journal.errors import JournalDamaged, JournalVersionUnknown

VERSION: Final = 1

FILE_MAGIC: Final = b"ESCROWMQ"
FILE_HEADER: Final = struct.Struct("<8sHHI16sQQ12sI")
FILE_HEADER_SIZE: Final = 64
TYPE_SEGMENT: Final = 1
TYPE_SNAPSHOT: Final = 2

FRAME_MAGIC: Final = b"EMQF"
FRAME_HEADER: Final = struct.Struct("<4sHHQQIIII")
FRAME_HEADER_SIZE: Final = 40

FOOTER_MAGIC: Final = b"EMQX"
FOOTER_ENTRY: Final = struct.Struct("<QQQ")
FOOTER_ENTRY_SIZE: Final = 24
FOOTER_END: Final = struct.Struct("<QQQQQQQI4sHHI")
FOOTER_END_SIZE: Final = 72

ALIGNMENT: Final = 8
MAX_RECORD: Final = 1 << 30
"""Largest payload of one record, in bytes."""
INDEX_STRIDE: Final = 1 << 16
"""The footer names a frame at least this many bytes after the one named before it."""

_CRC: Final = struct.Struct("<I")
_ZEROS: Final = bytes(ALIGNMENT)


@dataclass(frozen=True, slots=True)
class FileHeader:
    """The first 64 bytes of a file. `lsn`: of the first frame (segment), or that the state stands for (snapshot)."""

    type: int
    journal_id: bytes
    lsn: int
    created_us: int

    def pack(self) -> bytes:
        """Its 64 bytes."""
        head = FILE_HEADER.pack(
            FILE_MAGIC, VERSION, self.type, FILE_HEADER_SIZE, self.journal_id, self.lsn, self.created_us, bytes(12), 0
        )[:-4]
        return head + _CRC.pack(zlib.crc32(head))

    @property
    def seed(self) -> int:
        """What the checksums of this file's frames and footer start from, so that no other file's bytes pass in it."""
        return int(_CRC.unpack(self.pack()[-4:])[0])

    @property
    def origin(self) -> int:
        """The address of the first frame: a segment's frames are addressed by LSN, a snapshot's from zero."""
        return self.lsn if self.type == TYPE_SEGMENT else 0


def read_file_header(name: str, data: bytes) -> FileHeader:
    """Parse a file header. Raises JournalVersionUnknown, or JournalDamaged naming `name`."""
    if len(data) < FILE_HEADER_SIZE:
        raise JournalDamaged(name, len(data), f"the file ends within its header of {FILE_HEADER_SIZE} bytes")
    magic, version, type_, size, journal_id, lsn, created, _, crc = FILE_HEADER.unpack_from(data)
    if magic != FILE_MAGIC:
        raise JournalDamaged(name, 0, "this is not a journal file (wrong magic)")
    if version != VERSION:
        raise JournalVersionUnknown(name, version, VERSION)
    if crc != zlib.crc32(data[: FILE_HEADER_SIZE - 4]):
        raise JournalDamaged(name, FILE_HEADER_SIZE - 4, "the checksum of the file header does not match")
    if type_ not in (TYPE_SEGMENT, TYPE_SNAPSHOT) or size != FILE_HEADER_SIZE:
        raise JournalDamaged(name, 10, f"unknown file type {type_} or header size {size}")
    return FileHeader(type_, journal_id, lsn, created)


@dataclass(frozen=True, slots=True)
class FrameHeader:
    """The 40 bytes before a frame's body."""

    lsn: int
    time_us: int
    payload_size: int
    count: int
    body_crc: int
    header_crc: int

    @property
    def body_size(self) -> int:
        """Bytes after the header."""
        return body_size(self.payload_size, self.count)

    @property
    def end(self) -> int:
        """The address after the frame."""
        return self.lsn + FRAME_HEADER_SIZE + self.body_size


def pad(size: int) -> int:
    """Bytes that bring `size` to a multiple of the alignment."""
    return -size % ALIGNMENT


def body_size(payload_size: int, count: int) -> int:
    """Bytes of a frame body: payloads, `count + 1` offsets of four bytes, `count` kinds of one; two paddings."""
    table = 5 * count + 4
    return payload_size + pad(payload_size) + table + pad(table)


def read_frame_header(data: bytes | memoryview, lsn: int, seed: int) -> FrameHeader | None:
    """Parse the frame header at the start of `data`, or None if it is none, or not the one for address `lsn`."""
    if len(data) < FRAME_HEADER_SIZE:
        return None
    magic, version, flags, first, time_us, payload_size, count, body_crc, header_crc = FRAME_HEADER.unpack_from(data)
    if magic != FRAME_MAGIC or first != lsn or version != VERSION or flags != 0:
        return None
    if header_crc != zlib.crc32(data[: FRAME_HEADER_SIZE - 4], seed):
        return None
    return FrameHeader(first, time_us, payload_size, count, body_crc, header_crc)


def body_is_whole(header: FrameHeader, body: bytes | memoryview) -> bool:
    """Whether `body` is what the writer of `header` wrote (the header's own checksum covers `body_crc`)."""
    return len(body) == header.body_size and zlib.crc32(body) == header.body_crc


def pack_frame(
    lsn: int, time_us: int, payload: bytes, offsets: array[int], kinds: bytes | bytearray, seed: int
) -> tuple[bytes, bytes, bytes]:
    """A frame in three pieces to be written one after the other: header, `payload` itself (not copied), the rest.

    `offsets` has one item more than `kinds`: zero, then the end of each record's payload.
    """
    if sys.byteorder == "big":
        offsets = array("I", offsets)
        offsets.byteswap()
    table = len(kinds) * 5 + 4
    rest = b"".join((_ZEROS[: pad(len(payload))], offsets.tobytes(), kinds, _ZEROS[: pad(table)]))
    body_crc = zlib.crc32(rest, zlib.crc32(payload))
    head = FRAME_HEADER.pack(FRAME_MAGIC, VERSION, 0, lsn, time_us, len(payload), len(kinds), body_crc, 0)[:-4]
    return head + _CRC.pack(zlib.crc32(head, seed)), payload, rest


@dataclass(frozen=True, slots=True)
class Footer:
    """What a sealed file says of itself. `index`: (address of a frame, its time, records before it), sparse,
    ascending.
    """

    index: tuple[tuple[int, int, int], ...]
    first_lsn: int
    end_lsn: int
    frames: int
    records: int
    first_time_us: int
    last_time_us: int
    messages: int

    def pack(self, seed: int) -> bytes:
        """Its bytes: the entries, then the end block that a reader finds at the end of the file."""
        entries = b"".join(FOOTER_ENTRY.pack(*entry) for entry in self.index)
        numbers = (self.first_lsn, self.end_lsn, self.frames, self.records, self.first_time_us, self.last_time_us)
        end = FOOTER_END.pack(*numbers, self.messages, len(self.index), FOOTER_MAGIC, VERSION, 0, 0)[:-4]
        return entries + end + _CRC.pack(zlib.crc32(entries + end, seed))


def read_footer_end(data: bytes) -> tuple[int, int] | None:
    """From the last 72 bytes of a file: the footer's size in bytes and the file's end address; None if it has no
    footer.
    """
    if len(data) != FOOTER_END_SIZE:
        return None
    fields = FOOTER_END.unpack(data)
    if fields[8] != FOOTER_MAGIC or fields[9] != VERSION:
        return None
    return FOOTER_ENTRY_SIZE * fields[7] + FOOTER_END_SIZE, fields[1]


def read_footer(data: bytes, seed: int) -> Footer | None:
    """Parse a whole footer, or None if its checksum does not match."""
    *numbers, entries, _, _, _, crc = FOOTER_END.unpack(data[-FOOTER_END_SIZE:])
    if crc != zlib.crc32(data[:-4], seed):
        return None
    index = tuple(FOOTER_ENTRY.unpack_from(data, i * FOOTER_ENTRY_SIZE) for i in range(entries))
    first, end, frames, records, first_time, last_time, messages = numbers
    return Footer(index, first, end, frames, records, first_time, last_time, messages)


def segment_name(lsn: int) -> str:
    """The file name of the segment whose first frame has this LSN."""
    return f"{lsn:016x}.log"


def snapshot_name(lsn: int) -> str:
    """The file name of the snapshot that stands for this LSN."""
    return f"{lsn:016x}.snapshot"


def parse_name(name: str) -> tuple[int, int] | None:
    """(type, LSN) of a journal file's name; None for any other name."""
    stem, _, suffix = name.partition(".")
    type_ = {"log": TYPE_SEGMENT, "snapshot": TYPE_SNAPSHOT}.get(suffix)
    if type_ is None or len(stem) != 16 or not set(stem) <= set("0123456789abcdef"):
        return None
    return type_, int(stem, 16)
