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
class Damaged:
    """Where no whole frame is: from address `lsn` up to `end`, where one begins, or what was asked for ends."""

    lsn: int
    end: int
    why: str


@dataclass(frozen=True, slots=True)
class Window:
    """`data` as it lies in the file; `frames` of it are whole: (where the payload begins in `data`, LSN of the frame,
    its time in microseconds, bytes of payload, records).
    """

    data: bytes
    frames: list[tuple[int, int, int, int, int]]


def windows(
    file: JournalFile, lsn: int, end: int, size: int = WINDOW, skipped: list[Damaged] | None = None
) -> Iterator[Window]:
    """The frames from address `lsn` up to `end`, both borders of frames. What is not whole is left out and appended to
    `skipped`, if that is given.

    Raises:
        JournalDamaged: what lies between is not whole, and nobody wants to know what to leave out.
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
    """A window's data and frames, and how many bytes these are; no frame if none that is whole begins at `lsn`."""
    data = file.storage.read(file.name, file.offset_of(lsn), min(max(size, fmt.FRAME_HEADER_SIZE), end - lsn))
    frames, at = _frames(data, lsn, file.seed)
    if not frames:
        head = fmt.read_frame_header(data[: fmt.FRAME_HEADER_SIZE], lsn, file.seed)
        if head is not None and size < head.end - lsn <= end - lsn:  # it is longer than a window
            data = file.storage.read(file.name, file.offset_of(lsn), head.end - lsn)
            frames, at = _frames(data, lsn, file.seed)
    return data, frames, at


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
