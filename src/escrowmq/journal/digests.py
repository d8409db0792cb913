"""The digest of a frame, which the next frame repeats as its last record (DIGEST, docs/internals/records.md).

So whoever changes a record has to change every later frame, too, even if the checksums and the chain of segments were
made right again. The digest is made when the frame is written, from the checksum that is computed anyway.
"""

from __future__ import annotations

import hashlib
import struct
import sys
import zlib
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from escrowmq.core.records.kinds import Kind
from escrowmq.journal import format as fmt
from escrowmq.journal.frames import Frame

DIGEST: Final = int(Kind.DIGEST)
HEAD: Final = struct.Struct("<QQIII")
"""LSN and time of the frame, CRC of its body, size of the SHA-256 that follows, number of marks."""
STRONG_SIZE: Final = 16
"""The bytes of the SHA-256 of the body that are kept with `journal.chain = "contents"`."""
_PLAIN: Final = bytes(8)  # neither a SHA-256 nor marks
_SWAPPED: Final = sys.byteorder == "big"


@dataclass(frozen=True, slots=True)
class FrameDigest:
    """What a frame was when it was written.

    `marks` are the CRCs of the payload up to each multiple of MARK bytes, by which a change can be located. `strong` is
    the beginning of the SHA-256 of the body, or empty.
    """

    lsn: int
    time_us: int
    body_crc: int
    strong: bytes
    marks: array[int]

    def pack(self) -> bytes:
        """Return the payload of the record."""
        marks = self.marks
        if _SWAPPED:
            marks = array("I", marks)
            marks.byteswap()
        head = HEAD.pack(self.lsn, self.time_us, self.body_crc, len(self.strong), len(marks))
        return b"".join((head, self.strong, marks.tobytes()))

    def changes(self, frame: Frame) -> list[tuple[int, int]] | None:
        """Return where `frame` differs from what it was: ranges (begin, end) of its payload in bytes.

        None means that nothing differs; an empty list, that the difference cannot be located in the payload.
        """
        now = of_frame(frame, strong=bool(self.strong))
        if (now.time_us, now.body_crc, now.strong) == (self.time_us, self.body_crc, self.strong):
            return None
        if len(now.marks) != len(self.marks) or now.body_crc == self.body_crc:
            return []
        found = []
        for number, (begin, end) in enumerate(pairwise([0, *self.marks])):
            place = number * fmt.MARK, (number + 1) * fmt.MARK
            if zlib.crc32(frame.payload[slice(*place)], begin) != end:
                found.append(place)
        rest = len(self.marks) * fmt.MARK
        if zlib.crc32(frame.body[rest:], self.marks[-1] if self.marks else 0) != self.body_crc:
            found.append((rest, len(frame.payload)))
        return [(begin, end) for begin, end in found if begin < end]


def size_of(payload_size: int, *, strong: bool) -> int:
    """Return the size of the record for a frame with `payload_size` bytes of payload."""
    return HEAD.size + STRONG_SIZE * strong + 4 * (payload_size // fmt.MARK)


def of_parts(parts: Sequence[bytes], marks: array[int] | None, *, strong: bool) -> bytes:
    """Return the payload of the record for a frame that `format.pack_frame` has packed, in one step if it is short."""
    head = parts[0]
    if not marks and not strong:
        return head[8:24] + head[32:36] + _PLAIN  # LSN, time and CRC are encoded as in the header
    _, _, _, lsn, time_us, _, _, body_crc, _ = fmt.FRAME_HEADER.unpack(head)
    digest = _strong(parts[1:]) if strong else b""
    return FrameDigest(lsn, time_us, body_crc, digest, marks or array("I")).pack()


def of_frame(frame: Frame, *, strong: bool) -> FrameDigest:
    """Return the digest of a frame that was read."""
    marks = array("I")
    crc = fmt.marked_crc(frame.payload, 0, 0, marks)
    crc = zlib.crc32(frame.body[len(frame.payload) :], crc)
    return FrameDigest(frame.lsn, frame.time_us, crc, _strong([frame.body]) if strong else b"", marks)


def last_of(frame: Frame) -> FrameDigest | None:
    """Return the digest that the last record of `frame` repeats, or None if that is another record."""
    if frame.kinds[-1] != DIGEST:
        return None
    try:
        return decode(frame.payload[frame.offsets[-2] :])
    except ValueError:
        return None


def decode(data: bytes | memoryview) -> FrameDigest:
    """Return the digest in the payload of a record.

    Raises:
        ValueError: The payload is none of a digest.
    """
    payload = bytes(data)
    if len(payload) < HEAD.size:
        raise ValueError(f"a digest of {len(payload)} bytes is too short")
    lsn, time_us, body_crc, strong, number = HEAD.unpack_from(payload)
    at = HEAD.size + strong
    if strong not in (0, STRONG_SIZE) or len(payload) != at + 4 * number:
        raise ValueError(f"a digest of {len(payload)} bytes has another length than it says")
    marks = array("I", payload[at:])
    if _SWAPPED:
        marks.byteswap()
    return FrameDigest(lsn, time_us, body_crc, payload[HEAD.size : at], marks)


def _strong(parts: Iterable[bytes | memoryview]) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.digest()[:STRONG_SIZE]
