"""Entries of the replicated log, and their bytes.

A node claims the leadership with a CLAIM. Its SEGMENT and CHUNK entries carry the journal: the headers of the segments,
since the checksums of frames depend on them, and the frames, in pieces that every engine takes. A HEARTBEAT has no
content; a node that finds its own in the log knows that it still led at that place. With a RESIGNATION, a leader hands
over without being waited for.

An entry begins with a header of 24 bytes (little-endian): magic, version, kind, two zeros, epoch, CRC-32 of all other
bytes, four zeros.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

from escrowmq.journal.format import FILE_HEADER_SIZE
from escrowmq.replica.errors import EntryDamaged

MAGIC: Final = b"EMQR"
VERSION: Final = 1
HEADER: Final = struct.Struct("<4sBBHQII")
CHUNK_SIZE: Final = 900_000
"""The most bytes of a frame in one entry. Engines refuse messages of more than 1 MB by default."""
_NAMES: Final = struct.Struct("<HH")
_PLACE: Final = struct.Struct("<QII")
_MESSAGES: Final = struct.Struct("<Q")
_MOST_NAME: Final = 1024


@dataclass(frozen=True, slots=True)
class LeaderClaim:
    """A node claims an epoch. `url` is where its clients connect while it leads."""

    epoch: int
    node: str
    url: str


@dataclass(frozen=True, slots=True)
class SegmentStart:
    """The leader begins a segment of the journal with these 64 bytes.

    `messages` is the number that the segment before ever held, which is in its footer.
    """

    epoch: int
    header: bytes
    messages: int = 0


@dataclass(frozen=True, slots=True)
class FrameChunk:
    """A piece of the frame of `size` bytes at `lsn`; the piece begins `offset` bytes after the frame's beginning."""

    epoch: int
    lsn: int
    size: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The leader of `epoch` is there."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Resignation:
    """The leader of `epoch` has stopped leading, so another node may claim the next epoch at once."""

    epoch: int


Entry: TypeAlias = LeaderClaim | SegmentStart | FrameChunk | Heartbeat | Resignation


def chunks(epoch: int, lsn: int, frame: Sequence[bytes], size: int = CHUNK_SIZE) -> Iterator[FrameChunk]:
    """Divide a frame, given in parts, into chunks of at most `size` bytes."""
    whole = b"".join(frame)
    for offset in range(0, len(whole), size):
        yield FrameChunk(epoch, lsn, len(whole), offset, whole[offset : offset + size])


def encode(entry: Entry) -> bytes:
    """Return the bytes of an entry."""
    kind = _KINDS[type(entry)]
    body = _body(entry)
    unchecked = HEADER.pack(MAGIC, VERSION, kind, 0, entry.epoch, 0, 0)
    return HEADER.pack(MAGIC, VERSION, kind, 0, entry.epoch, zlib.crc32(body, zlib.crc32(unchecked)), 0) + body


def decode(data: bytes) -> Entry:
    """Return the entry with these bytes. Raises EntryDamaged."""
    if len(data) < HEADER.size:
        raise EntryDamaged(f"an entry of {len(data)} bytes is shorter than a header")
    magic, version, kind, zero, epoch, crc, end = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise EntryDamaged("an entry is not of EscrowMQ; give the log to it alone")
    if version != VERSION or kind not in _DECODERS or zero or end:
        raise EntryDamaged(f"an entry has version {version} and kind {kind}, which this program does not know")
    body = data[HEADER.size :]
    if crc != zlib.crc32(body, zlib.crc32(HEADER.pack(MAGIC, VERSION, kind, 0, epoch, 0, 0))):
        raise EntryDamaged("the checksum of an entry does not match")
    return _DECODERS[kind](epoch, body)


def _body(entry: Entry) -> bytes:
    match entry:
        case LeaderClaim():
            node, url = entry.node.encode(), entry.url.encode()
            return _NAMES.pack(len(node), len(url)) + node + url
        case SegmentStart():
            return entry.header + _MESSAGES.pack(entry.messages)
        case FrameChunk():
            return _PLACE.pack(entry.lsn, entry.size, entry.offset) + entry.data
        case Heartbeat() | Resignation():
            return b""


def _claim(epoch: int, body: bytes) -> LeaderClaim:
    if len(body) < _NAMES.size:
        raise EntryDamaged("a claim has no names")
    node, url = _NAMES.unpack_from(body)
    if len(body) != _NAMES.size + node + url or max(node, url) > _MOST_NAME:
        raise EntryDamaged("the names in a claim do not have their lengths")
    middle = _NAMES.size + node
    try:
        return LeaderClaim(epoch, body[_NAMES.size : middle].decode(), body[middle:].decode())
    except UnicodeDecodeError as error:
        raise EntryDamaged(f"a name in a claim is not UTF-8: {error}") from None


def _segment(epoch: int, body: bytes) -> SegmentStart:
    if len(body) != FILE_HEADER_SIZE + _MESSAGES.size:
        raise EntryDamaged(f"the beginning of a segment has {len(body)} bytes")
    return SegmentStart(epoch, body[:FILE_HEADER_SIZE], _MESSAGES.unpack_from(body, FILE_HEADER_SIZE)[0])


def _chunk(epoch: int, body: bytes) -> FrameChunk:
    if len(body) <= _PLACE.size:
        raise EntryDamaged("a chunk has no data")
    lsn, size, offset = _PLACE.unpack_from(body)
    data = body[_PLACE.size :]
    if offset + len(data) > size:
        raise EntryDamaged(f"a chunk goes beyond its frame of {size} bytes")
    return FrameChunk(epoch, lsn, size, offset, data)


def _heartbeat(epoch: int, body: bytes) -> Heartbeat:
    _check_empty(body)
    return Heartbeat(epoch)


def _resignation(epoch: int, body: bytes) -> Resignation:
    _check_empty(body)
    return Resignation(epoch)


def _check_empty(body: bytes) -> None:
    if body:
        raise EntryDamaged(f"an entry without content has {len(body)} bytes")


_KINDS: Final[Mapping[type[Entry], int]] = MappingProxyType(
    {LeaderClaim: 1, SegmentStart: 2, FrameChunk: 3, Heartbeat: 4, Resignation: 5}
)
_DECODERS: Final[Mapping[int, Callable[[int, bytes], Entry]]] = MappingProxyType(
    {1: _claim, 2: _segment, 3: _chunk, 4: _heartbeat, 5: _resignation}
)
