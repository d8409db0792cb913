"""Bulk reading: large windows of a file with a table of the frames in them, for readers that work on columns.

Each frame costs a few microseconds, for any number of records. Parsing its payload is up to the reader.
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
"""The size of a window in bytes; a longer frame gets a window of its own size."""


@dataclass(frozen=True, slots=True)
class Damaged:
    """A damaged range: no intact frame begins at address `lsn`. It reaches up to `end`.

    `end` is the start of the next intact frame, or the end of the requested range.
    """

    lsn: int
    end: int
    why: str


@dataclass(frozen=True, slots=True)
class Window:
    """A piece of a file and a table of its intact frames.

    Each item of `frames` is: offset of the payload in `data`, LSN of the frame, its time in microseconds, bytes of
    payload, number of records.
    """

    data: bytes
    frames: list[tuple[int, int, int, int, int]]


def windows(
    file: JournalFile, lsn: int, end: int, size: int = WINDOW, skipped: list[Damaged] | None = None
) -> Iterator[Window]:
    """Yield the frames from address `lsn` to `end`, which must both be frame boundaries.

    Damaged ranges are left out and appended to `skipped`, if it is given.

    Raises:
        JournalDamaged: A range is damaged, and `skipped` is None.
    """
    while lsn < end:
        data, frames, at = _read(file, lsn, end, size)
        if not frames:
            why = _why(data, lsn, file.seed)
            if skipped is None:
                raise JournalDamaged(file.name, file.offset_of(lsn), why)
            later = file.tail(lsn).later_frame
            behind = end if later is None else min(file.lsn_of(later), end)
            skipped.append(Damaged(lsn, behind, why))
            lsn = behind
            continue
        yield Window(data, frames)
        lsn += at


def _read(file: JournalFile, lsn: int, end: int, size: int) -> tuple[bytes, list[tuple[int, int, int, int, int]], int]:
    """Return a window's data and frames, and the size of the frames in bytes.

    There are no frames if no intact frame begins at `lsn`.
    """
    data = file.storage.read(file.name, file.offset_of(lsn), min(max(size, fmt.FRAME_HEADER_SIZE), end - lsn))
    frames, at = _frames(data, lsn, file.seed)
    if not frames:
        head = fmt.read_frame_header(data[: fmt.FRAME_HEADER_SIZE], lsn, file.seed)
        if head is not None and size < head.end - lsn <= end - lsn:  # the frame is longer than a window
            data = file.storage.read(file.name, file.offset_of(lsn), head.end - lsn)
            frames, at = _frames(data, lsn, file.seed)
    return data, frames, at


def _frames(data: bytes, lsn: int, seed: int) -> tuple[list[tuple[int, int, int, int, int]], int]:
    """Return the consecutive intact frames at the start of `data`, and where they end."""
    view = memoryview(data)
    unpack, size, crc32 = fmt.FRAME_HEADER.unpack_from, fmt.FRAME_HEADER_SIZE, zlib.crc32
    frames = []
    at, last = 0, len(data) - size
    while at <= last:
        magic, version, flags, first, time_us, payload, count, body_crc, head_crc = unpack(data, at)
        if magic != fmt.FRAME_MAGIC or version != fmt.FRAME_VERSION or flags or first != lsn + at:
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
    return "no frame begins here" if head is None else "the frame's checksum does not match"
