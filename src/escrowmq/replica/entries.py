"""Entries of the replicated log, and their bytes.

A node claims the leadership with a CLAIM. Its SEGMENT and CHUNK entries carry the journal: the headers of the
segments, since the checksums of frames depend on them, and the frames, in pieces that every engine takes. SNAPSHOT
entries carry the file of a snapshot. A node that finds its own HEARTBEAT in the log knows that it still led at that
place. With a RESIGNATION, a leader hands over without being waited for. With a NOTICE, any node says that the log has
lost entries, and how much its copy has. With a REPORT, any node shows operators how far it has followed. With a LIVE
MAP behind a snapshot, the leader says which segments still have living messages, so that an empty node need not copy
the others.

An entry begins with a header of 40 bytes (little-endian): magic, version, kind, encoding (2 bytes), epoch, chain (8
bytes), after, CRC-32 of all other bytes, four zeros. The data of chunks may be compressed (`compression.py`); the
encoding says how, and is 0 otherwise. Sizes and offsets are those of the data before that.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from isal import isal_zlib

from escrowmq.journal.format import FILE_HEADER_SIZE, LONG
from escrowmq.replica.compression import AS_IS, ENCODINGS, compress, decompress
from escrowmq.replica.errors import EntryDamaged

MAGIC: Final = b"EMQR"
VERSION: Final = 1
HEADER: Final = struct.Struct("<4sBBHQ8sQII")
CHUNK_SIZE: Final = 900_000
"""The most bytes of a frame in one entry, before compression. Engines refuse messages of more than 1 MB by default."""
ID_SIZE: Final = 16
CHAIN_SIZE: Final = 8
NO_CHAIN: Final = bytes(CHAIN_SIZE)
"""The chain before the first claim."""
_NAMES: Final = struct.Struct("<HH")
_PLACE: Final = struct.Struct("<QQQ")
_LSN: Final = struct.Struct("<Q")
_PAIR: Final = struct.Struct("<QQ")
_REPORT: Final = struct.Struct("<QQQQB")
_MAPPED: Final = struct.Struct("<QQQ8sQ")
_LEAVING: Final = b"\1"
_MOST_NAME: Final = 1024


@dataclass(frozen=True, slots=True)
class Stamp:
    """What every entry says about its writer.

    `chain` identifies all claims that counted up to the writer's one, and where each began. Two claims with the same
    number that were made before and after the log lost entries have different chains. A claim has the chain before it.
    `after` is the position up to which the writer had read the log. An entry before it proves that the log has lost
    some.
    """

    epoch: int
    chain: bytes = NO_CHAIN
    after: int = 0


@dataclass(frozen=True, slots=True)
class LeaderClaim:
    """A node claims an epoch.

    `id` is random, and differs between any two claims. `lsn` is the end of the frames that counted where the node had
    read to. `url` is where its clients connect while it leads.
    """

    stamp: Stamp
    id: bytes
    lsn: int
    node: str
    url: str

    def chain_at(self, next_lsn: int) -> bytes:
        """Return the chain of this claim's epoch, if the claim counts where the frames end at `next_lsn`."""
        data = self.stamp.chain + _LSN.pack(self.stamp.epoch) + self.id + _LSN.pack(next_lsn)
        return hashlib.blake2b(data, digest_size=CHAIN_SIZE).digest()


@dataclass(frozen=True, slots=True)
class SegmentStart:
    """The leader begins a segment of the journal with these 64 bytes, behind frames that end at `end_lsn`.

    The segment begins there, too, unless a journal that was there before is put into the log without its deleted
    segments. `messages` is the number that the segment before ever held, which is in its footer. A reader may begin
    with this entry, so it names the leader.
    """

    stamp: Stamp
    end_lsn: int
    header: bytes
    messages: int
    node: str
    url: str


@dataclass(frozen=True, slots=True)
class FrameChunk:
    """A piece of the frame of `size` bytes at `lsn`; the piece begins `offset` bytes after the frame's beginning."""

    stamp: Stamp
    lsn: int
    size: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class SnapshotChunk:
    """A piece of the file of `size` bytes that is the snapshot up to `lsn`."""

    stamp: Stamp
    lsn: int
    size: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The leader of the epoch is there. With `leaving`, it accepts no more connections, and will resign."""

    stamp: Stamp
    leaving: bool = False


@dataclass(frozen=True, slots=True)
class Resignation:
    """The leader of the epoch has stopped leading, so another node may claim the next epoch at once."""

    stamp: Stamp


@dataclass(frozen=True, slots=True)
class LossNotice:
    """`node` has found that the log has lost entries. Its own copy of the journal ends at `lsn`, and the last frame in
    it that counted did so in the epoch `copy_epoch`.
    """

    stamp: Stamp
    node: str
    copy_epoch: int
    lsn: int


class MappedSegment(NamedTuple):
    """A segment that counted at `position` of the log, in an epoch with this chain, and begins at `lsn`.

    The next one begins at the position `end` or before it.
    """

    lsn: int
    position: int
    epoch: int
    chain: bytes
    end: int


@dataclass(frozen=True, slots=True)
class LiveMap:
    """The snapshot whose first piece is at `position` needs these segments, in order, and all that follow the last."""

    stamp: Stamp
    position: int
    segments: tuple[MappedSegment, ...]


class TakeOverReason(IntEnum):
    """Why a node claimed the leadership."""

    NONE = 0
    """The report is not about a take-over."""
    FIRST = 1
    """Nobody had led before."""
    RESIGNED = 2
    ENDED = 3
    """The process of the leader had ended."""
    SILENT = 4
    """The log had no sign of the leader for the time of the lease."""
    LOSS = 5
    """The log had lost entries."""


@dataclass(frozen=True, slots=True)
class NodeReport:
    """`node` has copied the journal up to `lsn`, at a time in milliseconds since the epoch.

    A node that has taken over says why, and for how long (ms) no node had served clients.
    """

    stamp: Stamp
    node: str
    url: str
    lsn: int
    time_ms: int
    reason: TakeOverReason = TakeOverReason.NONE
    took_ms: int = 0
    map: int = 0
    """The position of the newest LiveMap that the node knows of; 0 if it knows of none."""


Entry: TypeAlias = (
    LeaderClaim
    | SegmentStart
    | FrameChunk
    | SnapshotChunk
    | Heartbeat
    | Resignation
    | LossNotice
    | NodeReport
    | LiveMap
)


def chunks(stamp: Stamp, lsn: int, frame: Sequence[bytes], size: int = CHUNK_SIZE) -> Iterator[FrameChunk]:
    """Divide a frame, given in parts, into chunks of at most `size` bytes."""
    whole = b"".join(frame)
    for offset in range(0, len(whole), size):
        yield FrameChunk(stamp, lsn, len(whole), offset, whole[offset : offset + size])


BLANK: Final = Stamp(0)
"""The stamp of an entry that is not stamped yet."""


def encode(entry: Entry) -> bytes:
    """Return the bytes of an entry."""
    kind, stamp = _KINDS[type(entry)], entry.stamp
    encoding, data = compress(entry.data) if isinstance(entry, FrameChunk | SnapshotChunk) else (AS_IS, b"")
    head, body = (MAGIC, VERSION, kind, encoding, stamp.epoch, stamp.chain, stamp.after), _body(entry)
    crc = zlib.crc32(body, zlib.crc32(HEADER.pack(*head, 0, 0)))
    crc = (isal_zlib.crc32 if len(data) >= LONG else zlib.crc32)(data, crc)
    return b"".join((HEADER.pack(*head, crc, 0), body, data))


def decode(data: bytes) -> Entry:
    """Return the entry with these bytes. Raises EntryDamaged."""
    if len(data) < HEADER.size:
        raise EntryDamaged(f"an entry of {len(data)} bytes is shorter than a header")
    *head, crc, end = HEADER.unpack_from(data)
    magic, version, kind, encoding, epoch, chain, after = head
    if magic != MAGIC:
        raise EntryDamaged("an entry is not of EscrowMQ; give the log to it alone")
    encodings = ENCODINGS if kind in _PIECES else (AS_IS,)
    if version != VERSION or (kind not in _DECODERS and kind not in _PIECES) or encoding not in encodings or end:
        unknown = f"version {version}, kind {kind} and encoding {encoding}"
        raise EntryDamaged(f"an entry has {unknown}, which this program does not know; update this node")
    rest = memoryview(data)[HEADER.size :]
    if crc != (isal_zlib.crc32 if len(rest) >= LONG else zlib.crc32)(rest, zlib.crc32(HEADER.pack(*head, 0, 0))):
        raise EntryDamaged("the checksum of an entry does not match")
    stamp = Stamp(epoch, chain, after)
    if kind in _PIECES:  # they may be long, so their bytes are copied only once
        return _PIECES[kind](stamp, *_piece(data, encoding))
    return _DECODERS[kind](stamp, data[HEADER.size :])


def _body(entry: Entry) -> bytes:
    """Return what follows the header, without the data of a chunk."""
    match entry:
        case FrameChunk() | SnapshotChunk():
            return _PLACE.pack(entry.lsn, entry.size, entry.offset)
        case LeaderClaim():
            return entry.id + _LSN.pack(entry.lsn) + _packed(entry.node, entry.url)
        case SegmentStart():
            return _PAIR.pack(entry.end_lsn, entry.messages) + entry.header + _packed(entry.node, entry.url)
        case LossNotice():
            return _PAIR.pack(entry.copy_epoch, entry.lsn) + _packed(entry.node, "")
        case NodeReport():
            numbers = _REPORT.pack(entry.lsn, entry.time_ms, entry.took_ms, entry.map, entry.reason)
            return numbers + _packed(entry.node, entry.url)
        case LiveMap():
            return _LSN.pack(entry.position) + b"".join(_MAPPED.pack(*each) for each in entry.segments)
        case Heartbeat():
            return _LEAVING if entry.leaving else b""
        case Resignation():
            return b""


def _packed(node: str, url: str) -> bytes:
    first, second = node.encode(), url.encode()
    return _NAMES.pack(len(first), len(second)) + first + second


def _names(body: bytes) -> tuple[str, str]:
    if len(body) < _NAMES.size:
        raise EntryDamaged("an entry has no names")
    node, url = _NAMES.unpack_from(body)
    if len(body) != _NAMES.size + node + url or max(node, url) > _MOST_NAME:
        raise EntryDamaged("the names in an entry do not have their lengths")
    middle = _NAMES.size + node
    try:
        return body[_NAMES.size : middle].decode(), body[middle:].decode()
    except UnicodeDecodeError as error:
        raise EntryDamaged(f"a name in an entry is not UTF-8: {error}") from None


def _claim(stamp: Stamp, body: bytes) -> LeaderClaim:
    if len(body) < ID_SIZE + _LSN.size:
        raise EntryDamaged("a claim is cut off")
    (lsn,) = _LSN.unpack_from(body, ID_SIZE)
    return LeaderClaim(stamp, body[:ID_SIZE], lsn, *_names(body[ID_SIZE + _LSN.size :]))


def _segment(stamp: Stamp, body: bytes) -> SegmentStart:
    names = _PAIR.size + FILE_HEADER_SIZE
    if len(body) < names:
        raise EntryDamaged(f"the start of a segment has {len(body)} bytes")
    end_lsn, messages = _PAIR.unpack_from(body)
    return SegmentStart(stamp, end_lsn, body[_PAIR.size : names], messages, *_names(body[names:]))


def _piece(data: bytes, encoding: int) -> tuple[int, int, int, bytes]:
    """Return the place and the data of a chunk, whose entry has these bytes."""
    begin = HEADER.size + _PLACE.size
    if len(data) <= begin:
        raise EntryDamaged("a chunk has no data")
    lsn, size, offset = _PLACE.unpack_from(data, HEADER.size)
    piece = decompress(encoding, memoryview(data)[begin:], CHUNK_SIZE)
    if offset + len(piece) > size:
        raise EntryDamaged(f"a chunk goes beyond its {size} bytes")
    return lsn, size, offset, piece


def _heartbeat(stamp: Stamp, body: bytes) -> Heartbeat:
    leaving = body == _LEAVING
    if not leaving:
        _check_empty(body)
    return Heartbeat(stamp, leaving)


def _resignation(stamp: Stamp, body: bytes) -> Resignation:
    _check_empty(body)
    return Resignation(stamp)


def _notice(stamp: Stamp, body: bytes) -> LossNotice:
    if len(body) < _PAIR.size:
        raise EntryDamaged("a notice is cut off")
    epoch, lsn = _PAIR.unpack_from(body)
    node, url = _names(body[_PAIR.size :])
    if url:
        raise EntryDamaged("a notice has a second name")
    return LossNotice(stamp, node, epoch, lsn)


def _report(stamp: Stamp, body: bytes) -> NodeReport:
    if len(body) < _REPORT.size:
        raise EntryDamaged("a report is cut off")
    lsn, time_ms, took_ms, position, reason = _REPORT.unpack_from(body)
    if reason not in _REASONS:
        raise EntryDamaged(f"a report has the reason {reason}, which this program does not know")
    return NodeReport(stamp, *_names(body[_REPORT.size :]), lsn, time_ms, TakeOverReason(reason), took_ms, position)


def _live_map(stamp: Stamp, body: bytes) -> LiveMap:
    if len(body) < _LSN.size or (len(body) - _LSN.size) % _MAPPED.size:
        raise EntryDamaged(f"a map of segments has {len(body)} bytes")
    (position,) = _LSN.unpack_from(body)
    return LiveMap(stamp, position, tuple(MappedSegment(*row) for row in _MAPPED.iter_unpack(body[_LSN.size :])))


def _check_empty(body: bytes) -> None:
    if body:
        raise EntryDamaged(f"an entry without content has {len(body)} bytes")


_REASONS: Final = frozenset(TakeOverReason)
_KINDS: Final[Mapping[type[Entry], int]] = MappingProxyType(
    {
        LeaderClaim: 1,
        SegmentStart: 2,
        FrameChunk: 3,
        Heartbeat: 4,
        Resignation: 5,
        SnapshotChunk: 6,
        LossNotice: 7,
        NodeReport: 8,
        LiveMap: 9,
    }
)
_DECODERS: Final[Mapping[int, Callable[[Stamp, bytes], Entry]]] = MappingProxyType(
    {
        1: _claim,
        2: _segment,
        4: _heartbeat,
        5: _resignation,
        7: _notice,
        8: _report,
        9: _live_map,
    }
)
_PIECES: Final[Mapping[int, type[FrameChunk | SnapshotChunk]]] = MappingProxyType({3: FrameChunk, 6: SnapshotChunk})
