"""The body of `escrow.read-ok`: many messages in columns (docs/internals/bulk.md).

All numbers are little-endian. The columns have the layout of Apache Arrow, so that a reader can hand them over without
copying: content offsets and contents are the two buffers of a binary array. Contents are in the form in which the
broker stores them; `stored` reads a single one.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, Literal, NamedTuple

from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.reservations.reading import Batch, Shared
from escrowmq.wire.amqp091.delivery import parts_of, view_of
from escrowmq.wire.amqp091.publication import PROTOCOL
from escrowmq.wire.amqp091.stored import stored_parts
from escrowmq.wire.formats import FORMATS

MAGIC: Final = b"EMQB"
VERSION: Final = 2
HEAD: Final = struct.Struct("<4sHHQIIII")  # magic, version, flags, first number, messages, runs, envelopes, zero
ALIGNMENT: Final = 8
REDELIVERED: Final = 1
NO_TTL: Final = -1
_MICROSECONDS: Final = 1000


class BulkError(ValueError):
    """The bytes are not a bulk body."""


class Message(NamedTuple):
    """One message. `time` is its arrival in microseconds since the epoch; `properties` are as in a content header."""

    number: int
    position: int
    exchange: bytes
    routing_key: bytes
    properties: bytes
    time: int
    redelivered: bool
    body: bytes


@dataclass(frozen=True, slots=True)
class Strings:
    """Byte strings: number i is `data[offsets[i]:offsets[i + 1]]`."""

    offsets: memoryview
    data: memoryview

    def __getitem__(self, i: int) -> bytes:
        return bytes(self.data[self.offsets[i] : self.offsets[i + 1]])


@dataclass(frozen=True, slots=True)
class Bulk:
    """The columns, as views of the bytes from which they were read.

    A run consists of consecutive messages that share everything but position and content. `run_ends` counts from the
    first message. `forms` are the protocol numbers of the envelopes, which say what the contents are; `durable`,
    `priorities` and `ttls` are further facts about each envelope. Only envelopes of plain content have properties.
    """

    first: int
    positions: memoryview
    run_ends: memoryview
    run_envelopes: memoryview
    run_times: memoryview
    run_flags: memoryview
    forms: memoryview
    durable: memoryview
    priorities: memoryview
    ttls: memoryview
    exchanges: Strings
    routing_keys: Strings
    properties: Strings
    contents: Strings

    @property
    def count(self) -> int:
        """Number of messages."""
        return len(self.positions)

    def envelope(self, number: int) -> Envelope:
        """Return an envelope. The history of a dead letter is in its properties. Names that are not UTF-8 have
        replacement characters.
        """
        ttl = self.ttls[number]
        return Envelope(
            self.exchanges[number].decode("utf-8", "replace"),
            self.routing_keys[number].decode("utf-8", "replace"),
            self.properties[number],
            protocol=self.forms[number],
            durable=bool(self.durable[number]),
            priority=self.priorities[number],
            ttl=None if ttl < 0 else ttl,
        )

    def messages(self) -> Iterator[Message]:
        """Yield the messages, one by one."""
        at = 0
        for run, end in enumerate(self.run_ends):
            number = self.run_envelopes[run]
            envelope, exchange, key = self.envelope(number), self.exchanges[number], self.routing_keys[number]
            time, redelivered = self.run_times[run], bool(self.run_flags[run] & REDELIVERED)
            for i in range(at, end):
                own, properties, body = stored_parts(envelope, self.contents[i])
                yield Message(
                    self.first + i, self.positions[i], exchange, own or key, properties, time, redelivered, body
                )
            at = end


def encode(batch: Batch) -> bytes:
    """Encode a batch as a bulk body. Contents stay as they are in the log, apart from those of some dead letters."""
    batch, lists = _unpacked(batch)
    numbers: dict[tuple[Envelope, bytes | None], int] = {}
    runs = batch.runs
    chosen = [numbers.setdefault(key, len(numbers)) for key in zip([run.envelope for run in runs], lists, strict=True)]
    envelopes = [envelope for envelope, _ in numbers]
    exchanges = [envelope.exchange.encode("utf-8", "surrogatepass") for envelope in envelopes]
    keys = [envelope.routing_key.encode("utf-8", "surrogatepass") for envelope in envelopes]
    properties = [
        (view_of(envelope).properties if envelope.protocol == PROTOCOL else b"") if own is None else own
        for envelope, own in numbers
    ]
    forms = [PROTOCOL if own is not None else envelope.protocol for envelope, own in numbers]
    ttls = [NO_TTL if envelope.ttl is None else envelope.ttl for envelope in envelopes]
    parts: list[bytes] = [HEAD.pack(MAGIC, VERSION, 0, batch.first, len(batch.positions), len(runs), len(numbers), 0)]
    parts.append(batch.positions.tobytes())
    parts.append(_padded(array("I", [run.end for run in runs]).tobytes()))
    parts.append(_padded(array("I", chosen).tobytes()))
    parts.append(array("Q", [run.time * _MICROSECONDS for run in runs]).tobytes())
    parts.append(_padded(bytes([run.redelivered for run in runs])))
    parts.append(_padded(bytes(forms)))
    parts.append(_padded(bytes([envelope.durable for envelope in envelopes])))
    parts.append(_padded(bytes([envelope.priority for envelope in envelopes])))
    parts.append(array("q", ttls).tobytes())
    parts += [_offsets(list(map(len, strings))) for strings in (exchanges, keys, properties)]
    parts.append(_offsets(batch.lengths))
    parts += [_padded(b"".join(strings)) for strings in (exchanges, keys, properties)]
    return b"".join(parts + batch.contents)


def _unpacked(batch: Batch) -> tuple[Batch, Sequence[bytes | None]]:
    """The batch with plain bodies in place of dead letters whose contents have properties of their own; and the
    properties of each run of these, None for all other runs.

    The history of a dead letter is in its envelope, with routing keys that a reader may not see, so it is put into the
    properties here, as for any consumer.
    """
    if not any(run.envelope.deaths and run.envelope.protocol != PROTOCOL for run in batch.runs):
        return batch, [None] * len(batch.runs)
    content = memoryview(b"".join(batch.contents))
    ends = list(accumulate(batch.lengths, initial=0))
    contents: list[bytes] = []
    lengths = array("I")
    runs: list[Shared] = []
    lists: list[bytes | None] = []
    begin = 0
    for run in batch.runs:
        if run.envelope.protocol == PROTOCOL or not run.envelope.deaths:
            contents.append(bytes(content[ends[begin] : ends[run.end]]))
            lengths.extend(batch.lengths[begin : run.end])
            runs.append(run)
            lists.append(None)
        else:
            for i in range(begin, run.end):
                props, body = parts_of(run.envelope, bytes(content[ends[i] : ends[i + 1]]))
                contents.append(body)
                lengths.append(len(body))
                if i > begin and lists[-1] == props:
                    runs[-1] = runs[-1]._replace(end=i + 1)
                else:
                    runs.append(run._replace(end=i + 1))
                    lists.append(props)
        begin = run.end
    # Not with `_replace`, which takes the number of messages for that of fields.
    return Batch(batch.first, batch.next, batch.positions, lengths, contents, runs), lists


def _offsets(lengths: Sequence[int]) -> bytes:
    return _padded(array("I", accumulate(lengths, initial=0)).tobytes())


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % ALIGNMENT)


def decode(data: bytes | bytearray | memoryview) -> Bulk:
    """Return the columns of a body; they keep `data` alive. Raises BulkError if `data` is not a bulk body."""
    view = memoryview(data)
    if len(view) < HEAD.size:
        raise BulkError(f"{len(view)} bytes are too few for a bulk body")
    magic, version, flags, first, count, runs, envelopes, _ = HEAD.unpack_from(view)
    if magic != MAGIC:
        raise BulkError(f"a bulk body begins with {MAGIC!r}, not {magic!r}")
    if version != VERSION or flags:
        raise BulkError(f"version {version} of bulk bodies (flags {flags:#x}) is unknown")
    cut = _Cutter(view)
    positions = cut.column("Q", count)
    run_ends = cut.column("I", runs)
    run_envelopes = cut.column("I", runs)
    run_times = cut.column("Q", runs)
    run_flags = cut.column("B", runs)
    forms, durable, priorities = (cut.column("B", envelopes) for _ in range(3))
    ttls = cut.column("q", envelopes)
    offsets = [cut.column("I", envelopes + 1) for _ in range(3)] + [cut.column("I", count + 1)]
    strings = [cut.strings(each) for each in offsets]
    cut.end()
    if run_ends.tolist() != sorted(set(run_ends)) or (run_ends[-1] if runs else 0) != count:
        raise BulkError("the runs of a bulk body do not cover its messages")
    if runs and (max(run_envelopes) >= envelopes or run_ends[0] == 0):
        raise BulkError("a run of a bulk body is empty, or has no envelope")
    if not FORMATS.keys() >= set(forms):
        raise BulkError("a bulk body has contents of an unknown form")
    columns = (positions, run_ends, run_envelopes, run_times, run_flags, forms, durable, priorities, ttls)
    return Bulk(first, *columns, *strings)


class _Cutter:
    """Cuts one column after the other from the front of the bytes."""

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._at = HEAD.size

    def _take(self, size: int) -> memoryview:
        at = self._at + -self._at % ALIGNMENT
        if at + size > len(self._view):
            raise BulkError(f"a bulk body ends after {len(self._view)} bytes, in the middle of a column")
        self._at = at + size
        return self._view[at : at + size]

    def column(self, code: Literal["B", "I", "Q", "q"], count: int) -> memoryview:
        return self._take(struct.calcsize(code) * count).cast(code)

    def strings(self, offsets: memoryview) -> Strings:
        ends = offsets.tolist()
        if ends[0] or ends != sorted(ends):
            raise BulkError("the offsets of a bulk body do not ascend from 0")
        return Strings(offsets, self._take(ends[-1]))

    def end(self) -> None:
        if self._at != len(self._view):
            raise BulkError("bytes follow the last column of a bulk body")
