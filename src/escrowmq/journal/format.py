"""The bytes of journal files, version 6. A test compares this module with docs/internals/journal.md.

A file consists of a file header, frames, and, once sealed, a footer. All integers are little-endian. Frames begin at
multiples of eight bytes. A frame stores its records in columns: all payloads, then their offsets, then their kinds. The
offsets have the layout of an Arrow binary array, so bulk readers need not walk them.
"""

from __future__ import annotations

import struct
import sys
import zlib
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from isal import isal_zlib

from escrowmq.journal.errors import JournalDamaged, JournalVersionUnknown

VERSION: Final = 6
"""The version of new files. Version 2 added packed content and MARKED records, version 3 keyed content, version 4 the
chain of segments, version 5 DIGEST records, version 6 REMOVED records. The layout of frames is that of version 1.
"""
CHAINED_VERSION: Final = 4
"""The version from which on files belong to a chain."""
DIGESTED_VERSION: Final = 5
"""The version from which on each frame repeats the digest of the frame before it."""
NOTED_VERSION: Final = 6
"""The version from which on the journal notes which segments it deletes."""
OLDEST_VERSION: Final = 1
"""The oldest version of files that can be read."""
FRAME_VERSION: Final = 1
"""The version of the layout of frames and footers, which is that of the first journals."""

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
CHAIN_SIZE: Final = 32
"""The bytes of a file's digest in the chain (SHA-256)."""
LINK_SIZE: Final = 12
"""The bytes of the previous segment's digest that are in a segment's header."""
OF_HEADERS: Final = 1
OF_CONTENTS: Final = 2
"""What the digest in a footer is made of, besides the file header: the headers of frames, or whole frames."""

ALIGNMENT: Final = 8
MAX_RECORD: Final = 1 << 30
"""The largest payload of one record, in bytes."""
INDEX_STRIDE: Final = 1 << 16
"""The smallest distance in bytes between two frames that the footer's index lists."""

LONG: Final = 32_768
"""Bytes from which on isal computes the checksum of a piece that is written. It is up to 15 times as fast as zlib. But
on some machines the first call leaves the thread's AVX-512 registers in a state in which all other code of that thread
runs about a third slower. Only a thread that writes a journal may therefore call it, on a leader or on a standby: never
the event loop, and no other reader.
"""
MARK: Final = 4096
"""The distance in bytes between the places of a payload whose CRC a DIGEST record has. CPython computes checksums of up
to 5 KiB without giving the interpreter lock away, which the writer's thread would have to wait for each time.
"""
_CRC: Final = struct.Struct("<I")
_ZEROS: Final = bytes(ALIGNMENT)


@dataclass(frozen=True, slots=True)
class FileHeader:
    """The first 64 bytes of a file.

    `lsn` is the address of the first frame of a segment, or the LSN up to which a snapshot covers the log.
    """

    type: int
    journal_id: bytes
    lsn: int
    created_us: int
    version: int = VERSION
    link: bytes = bytes(LINK_SIZE)
    """The beginning of the digest of the segment before; zeros if there is none, or it has none."""

    def pack(self) -> bytes:
        """Return the 64 bytes."""
        head = FILE_HEADER.pack(
            FILE_MAGIC,
            self.version,
            self.type,
            FILE_HEADER_SIZE,
            self.journal_id,
            self.lsn,
            self.created_us,
            self.link,
            0,
        )[:-4]
        return head + _CRC.pack(zlib.crc32(head))

    @property
    def seed(self) -> int:
        """The initial value of the checksums of this file's frames and footer, so no other file's bytes match them."""
        return int(_CRC.unpack(self.pack()[-4:])[0])

    @property
    def origin(self) -> int:
        """The address of the first frame. Frames of a segment are addressed by LSN, those of a snapshot from zero."""
        return self.lsn if self.type == TYPE_SEGMENT else 0


def read_file_header(name: str, data: bytes) -> FileHeader:
    """Parse a file header. `name` is the file's name for errors.

    Raises:
        JournalVersionUnknown: The file has a newer format version.
        JournalDamaged: The bytes are not an intact file header.
    """
    if len(data) < FILE_HEADER_SIZE:
        raise JournalDamaged(name, len(data), f"the file ends before the end of its header ({FILE_HEADER_SIZE} bytes)")
    magic, version, type_, size, journal_id, lsn, created, link, crc = FILE_HEADER.unpack_from(data)
    if magic != FILE_MAGIC:
        raise JournalDamaged(name, 0, "this is not a journal file (wrong magic)")
    if not OLDEST_VERSION <= version <= VERSION:
        raise JournalVersionUnknown(name, version, VERSION)
    if crc != zlib.crc32(data[: FILE_HEADER_SIZE - 4]):
        raise JournalDamaged(name, FILE_HEADER_SIZE - 4, "the file header's checksum does not match")
    if type_ not in (TYPE_SEGMENT, TYPE_SNAPSHOT) or size != FILE_HEADER_SIZE:
        raise JournalDamaged(name, 10, f"unknown file type {type_} or header size {size}")
    return FileHeader(type_, journal_id, lsn, created, version, link)


@dataclass(frozen=True, slots=True)
class FrameHeader:
    """The 40 bytes in front of a frame's body."""

    lsn: int
    time_us: int
    payload_size: int
    count: int
    body_crc: int
    header_crc: int

    @property
    def body_size(self) -> int:
        """The size of the body in bytes."""
        return body_size(self.payload_size, self.count)

    @property
    def end(self) -> int:
        """The address of the first byte after the frame."""
        return self.lsn + FRAME_HEADER_SIZE + self.body_size


def pad(size: int) -> int:
    """Return the number of bytes that pad `size` to a multiple of ALIGNMENT."""
    return -size % ALIGNMENT


def body_size(payload_size: int, count: int) -> int:
    """Return the size of a frame's body: payloads, `count + 1` offsets of 4 bytes, `count` kinds, and two paddings."""
    table = 5 * count + 4
    return payload_size + pad(payload_size) + table + pad(table)


def read_frame_header(data: bytes | memoryview, lsn: int, seed: int) -> FrameHeader | None:
    """Parse the frame header at the start of `data`. Returns None if it is not the intact header for address `lsn`."""
    if len(data) < FRAME_HEADER_SIZE:
        return None
    magic, version, flags, first, time_us, payload_size, count, body_crc, header_crc = FRAME_HEADER.unpack_from(data)
    if magic != FRAME_MAGIC or first != lsn or version != FRAME_VERSION or flags != 0:
        return None
    if header_crc != zlib.crc32(data[: FRAME_HEADER_SIZE - 4], seed):
        return None
    return FrameHeader(first, time_us, payload_size, count, body_crc, header_crc)


def body_is_whole(header: FrameHeader, body: bytes | memoryview) -> bool:
    """Return whether `body` matches the checksum in `header` (which the header's own checksum covers)."""
    return len(body) == header.body_size and zlib.crc32(body) == header.body_crc


def marked_crc(
    data: bytes | memoryview,
    at: int,
    crc: int,
    marks: array[int],
    crc32: Callable[[bytes | memoryview, int], int] = zlib.crc32,
) -> int:
    """Return the CRC of a payload up to the end of `data`, which begins at its offset `at`. `crc` is the one up to
    `at`.

    The CRCs at multiples of MARK are appended to `marks`.
    """
    first = -at % MARK or MARK
    if len(data) < first:
        return crc32(data, crc)
    view, begin = memoryview(data), 0
    for end in range(first, len(data) + 1, MARK):
        crc = crc32(view[begin:end], crc)
        marks.append(crc)
        begin = end
    return crc32(view[begin:], crc)


def pack_frame(
    lsn: int,
    time_us: int,
    payload: Sequence[bytes],
    offsets: array[int],
    kinds: bytes | bytearray,
    seed: int,
    marks: array[int] | None = None,
    digest: bytes = b"",
) -> list[bytes]:
    """Return a frame in pieces to be written one after the other: header, the pieces of `payload` (not copied), the
    rest.

    `offsets` has one item more than `kinds`: zero, then the end of each record's payload. The CRCs of the payload at
    multiples of MARK are appended to `marks`, if it is given. `digest` is the end of the payload of a frame without
    `marks`; it is copied, which costs less than a piece of its own.
    """
    if sys.byteorder == "big":
        offsets = array("I", offsets)
        offsets.byteswap()
    size = body_crc = 0
    for piece in payload:
        crc32 = isal_zlib.crc32 if len(piece) >= LONG else zlib.crc32
        if marks is None:
            body_crc = crc32(piece, body_crc)
        else:
            body_crc = marked_crc(piece, size, body_crc, marks, crc32)
        size += len(piece)
    table = len(kinds) * 5 + 4
    size += len(digest)
    rest = b"".join((digest, _ZEROS[: pad(size)], offsets.tobytes(), kinds, _ZEROS[: pad(table)]))
    body_crc = zlib.crc32(rest, body_crc)
    head = FRAME_HEADER.pack(FRAME_MAGIC, FRAME_VERSION, 0, lsn, time_us, size, len(kinds), body_crc, 0)[:-4]
    return [head + _CRC.pack(zlib.crc32(head, seed)), *payload, rest]


@dataclass(frozen=True, slots=True)
class Footer:
    """The summary at the end of a sealed file.

    `index` is sparse and ascending; each item is: address of a frame, its time, number of records before it. `chain` is
    the digest of the file, and `chained` says what it is made of (OF_HEADERS or OF_CONTENTS); files of older versions
    have none, and 0.
    """

    index: tuple[tuple[int, int, int], ...]
    first_lsn: int
    end_lsn: int
    frames: int
    records: int
    first_time_us: int
    last_time_us: int
    messages: int
    chain: bytes = b""
    chained: int = 0

    def pack(self, seed: int) -> bytes:
        """Encode the footer: the index entries, the digest, then the end block, by which readers find the footer."""
        entries = b"".join(FOOTER_ENTRY.pack(*entry) for entry in self.index) + self.chain
        numbers = (self.first_lsn, self.end_lsn, self.frames, self.records, self.first_time_us, self.last_time_us)
        last = (len(self.index), FOOTER_MAGIC, FRAME_VERSION, self.chained, 0)
        end = FOOTER_END.pack(*numbers, self.messages, *last)[:-4]
        return entries + end + _CRC.pack(zlib.crc32(entries + end, seed))


def read_footer_end(data: bytes) -> tuple[int, int] | None:
    """Parse the last 72 bytes of a file. Returns the footer's size in bytes and the file's end address.

    Returns None if the file has no footer.
    """
    if len(data) != FOOTER_END_SIZE:
        return None
    fields = FOOTER_END.unpack(data)
    if fields[8] != FOOTER_MAGIC or fields[9] != FRAME_VERSION:
        return None
    return FOOTER_ENTRY_SIZE * fields[7] + (CHAIN_SIZE if fields[10] else 0) + FOOTER_END_SIZE, fields[1]


def read_footer(data: bytes, seed: int) -> Footer | None:
    """Parse a complete footer. Returns None if its checksum does not match."""
    *numbers, entries, _, _, chained, crc = FOOTER_END.unpack(data[-FOOTER_END_SIZE:])
    if crc != zlib.crc32(data[:-4], seed):
        return None
    index = tuple(FOOTER_ENTRY.unpack_from(data, i * FOOTER_ENTRY_SIZE) for i in range(entries))
    first, end, frames, records, first_time, last_time, messages = numbers
    at = entries * FOOTER_ENTRY_SIZE
    chain = bytes(data[at : at + CHAIN_SIZE]) if chained else b""
    return Footer(index, first, end, frames, records, first_time, last_time, messages, chain, chained)


def segment_name(lsn: int) -> str:
    """Return the file name of the segment whose first frame has this LSN."""
    return f"{lsn:016x}.log"


def snapshot_name(lsn: int) -> str:
    """Return the file name of the snapshot that covers the log up to this LSN."""
    return f"{lsn:016x}.snapshot"


def parse_name(name: str) -> tuple[int, int] | None:
    """Return the type and LSN in a journal file's name, or None for any other name."""
    stem, _, suffix = name.partition(".")
    type_ = {"log": TYPE_SEGMENT, "snapshot": TYPE_SNAPSHOT}.get(suffix)
    if type_ is None or len(stem) != 16 or not set(stem) <= set("0123456789abcdef"):
        return None
    return type_, int(stem, 16)
