"""Frames in bulk: large pieces of a file with a table of the checked frames in them, for readers that work on columns.

A frame costs a few microseconds here however many records it has; what is in it is the reader's to take apart.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from escrowmq.journal import format as fmt
from escrowmq.journal.errors import JournalDamaged
from escrowmq.journal.frames import JournalFile

WINDOW: Final = 8 << 20
"""Bytes of one window; a longer frame makes a longer one."""


@dataclass(frozen=True, slots=True)
class Window:
    """`data` as it lies in the file; `frames` of it are whole: (where the payload begins in `data`, LSN of the frame,
    its time in microseconds, bytes of payload, records).
    """

    data: bytes
    frames: list[tuple[int, int, int, int, int]]


def windows(file: JournalFile, lsn: int, end: int, size: int = WINDOW) -> Iterator[Window]:
    """The frames from address `lsn` up to `end`, both borders of frames.

    Raises:
        JournalDamaged: what lies between is not whole.
    """
    seed = file.seed
    while lsn < end:
        data = file.storage.read(file.name, file.offset_of(lsn), min(max(size, fmt.FRAME_HEADER_SIZE), end - lsn))
        frames, at = _frames(data, lsn, seed)
        if not frames:
            head = fmt.read_frame_header(data[: fmt.FRAME_HEADER_SIZE], lsn, seed)
            if head is None or head.end > end or head.end - lsn <= size:
                raise JournalDamaged(file.name, file.offset_of(lsn), _why(data, lsn, seed))
            data = file.storage.read(file.name, file.offset_of(lsn), head.end - lsn)
            frames, at = _frames(data, lsn, seed)
            if not frames:
                raise JournalDamaged(file.name, file.offset_of(lsn), _why(data, lsn, seed))
        yield Window(data, frames)
        lsn += at


def _frames(data: bytes, lsn: int, seed: int) -> tuple[list[tuple[int, int, int, int, int]], int]:
    """The whole frames that begin at the start of `data`, one behind the other, and where they end."""
    view = memoryview(data)
    unpack, size, crc32 = fmt.FRAME_HEADER.unpack_from, fmt.FRAME_HEADER_SIZE, zlib.crc32
    frames = []
    at, last = 0, len(data) - size
    while at <= last:
        magic, version, flags, first, time_us, payload, count, body_crc, head_crc = unpack(data, at)
        if magic != fmt.FRAME_MAGIC or version != fmt.VERSION or flags or first != lsn + at:
            break
        body = at + size
        stop = body + fmt.body_size(payload, count)
        if stop > len(data) or crc32(view[at : body - 4], seed) != head_crc or crc32(view[body:stop]) != body_crc:
            break
        frames.append((body, first, time_us, payload, count))
        at = stop
    return frames, at


def _why(data: bytes, lsn: int, seed: int) -> str:
    head = fmt.read_frame_header(data[: fmt.FRAME_HEADER_SIZE], lsn, seed)
    return "no frame begins here" if head is None else "the checksum of the frame does not match"
