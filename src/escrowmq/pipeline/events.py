"""Convert operations to events. An event says what happened, and when, to a range of positions on a queue."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from escrowmq.columnar.octets import ROOM
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.marking import decode_marked
from escrowmq.core.records.references import TRANSIENT
from escrowmq.core.records.reservations import decode_held
from escrowmq.pipeline.blocks import (
    BLOCK,
    BODY,
    Block,
    GoneError,
    Keys,
    Lookup,
    NowhereError,
    bodies,
    envelopes,
    keys,
    look_up,
    with_key,
)
from escrowmq.pipeline.columns import U32, U64, Bytes, Ints, Rows, integers, numbered, ragged, take, texts
from escrowmq.pipeline.frames import Records
from escrowmq.pipeline.identity_columns import Blocks, IdentityColumns, concatenated, identities_of
from escrowmq.pipeline.operations import OPERATION_HEAD, Operations

BUCKET_BITS = 16
"""The work is divided into buckets of 2 ** BUCKET_BITS consecutive positions of a queue."""


class Happened(IntEnum):
    """What happened to an event's positions."""

    PUBLISHED = 1
    SETTLED = 2
    MOVED = 3
    RETURNED = 4
    HANDED_OUT = 5
    HELD_IN_SNAPSHOT = 6
    DELIVERED = 7
    COPIED = 8
    TAKEN = 9
    SETTLED_BY_GROUP = 10
    COUNTED = 11
    MARKED = 12
    MARKED_IN_SNAPSHOT = 13
    NEXT = 14


EVENT = np.dtype(
    [
        ("queue", "<i8"),
        ("first", "<i8"),
        ("count", "<i8"),
        ("what", "u1"),
        ("code", "u1"),  # outcome of a settlement, flags of a delivery
        ("order", "<i4"),  # grows with the operations of a record
        ("lsn", "<i8"),
        ("frame", "<i8"),
        ("time", "<i8"),  # when the frame was written, in microseconds
        ("came", "<i8"),  # when the message arrived at the broker, or was delivered, in milliseconds
        ("branch", "<i8"),
        ("block", "<i8"),  # LSN of the block
        ("index", "<i8"),  # index of the first message in the block
        ("text", "<i8"),  # index of the envelope's text, or of the consumer's name
        ("bodies", "<i8"),  # index of the first body among all bodies, -1 if they are not known
    ]
)

TARGET = np.dtype([("queue", "<u4"), ("first", "<u8")])
SETTLE = np.dtype([("queue", "<u4"), ("outcome", "u1"), ("ranges", "<u4")])
RANGE = np.dtype([("first", "<u8"), ("count", "<u4")])
MOVE = np.dtype([("queue", "<u4"), ("count", "<u4")])
DELIVERIES = np.dtype([("queue", "<u4"), ("time", "<u8"), ("parts", "<u4")])
PART = np.dtype([("flags", "u1"), ("name", "<u2"), ("ranges", "<u4")])
STATE = np.dtype([("queue", "<u4"), ("next", "<u8"), ("below", "<u8"), ("references", "<u4"), ("counted", "<u4")])
NOWHERE = -1
"""The value of `came` for a message that is not at the address where the log says it is."""


@dataclass(frozen=True, slots=True)
class Events:
    """Events in the order of the log.

    Args:
        rows: the events, of the type EVENT.
        texts: texts of envelopes and names of consumers, to which `text` refers.
        bodies: sizes, digests and texts of the type BODY, to which `bodies` refers.
        ids: the identity of the message of each of the bodies; None if no identities are known.
    """

    rows: Rows
    texts: list[bytes]
    bodies: Rows
    ids: IdentityColumns | None = None

    def __len__(self) -> int:
        return len(self.rows)


class Identified(NamedTuple):
    """Blocks whose messages' identities are wanted, and the index of the first body of each."""

    blocks: Blocks
    bodies: Ints


@dataclass(slots=True)
class Builder:
    """Collects the events of one window of the journal. `ids` says whether the identities of messages are wanted."""

    records: Records
    operations: Operations
    ids: bool = False
    rows: list[Rows] = field(default_factory=list)
    texts: list[bytes] = field(default_factory=list)
    bodies: list[Rows] = field(default_factory=list)
    counted: int = 0
    blocks: dict[int, tuple[Block, int]] = field(default_factory=dict)
    """Blocks already looked up, by LSN, each with the index of its first body. Several queues can share a block."""
    published: Identified | None = None
    """Those of the window in which messages are published."""
    elsewhere: dict[int, Block] = field(default_factory=dict)
    """Blocks in which messages are published or copied, and which were looked up, by the index of their first body."""

    def add(self, chosen: Ints, what: Happened, count: int) -> Rows:
        """Append `count` events, and return them for the caller to complete.

        `chosen` are the indexes of their operations, from which the fields that all kinds share are filled in.
        """
        rows = np.zeros(count, EVENT)
        operations, records = self.operations, self.records
        record = operations.record[chosen]
        rows["what"] = what
        rows["order"] = operations.order[chosen]
        rows["branch"] = operations.branch[chosen]
        rows["lsn"], rows["frame"], rows["time"] = records.lsn[record], records.frame[record], records.time[record]
        rows["bodies"] = -1
        self.rows.append(rows)
        return rows

    def have(self, bodies: Rows, keys: Keys, texts_: list[bytes], text: Ints) -> int:
        """Append bodies, and the texts of those that have a routing key of their own. Return the index of the first.

        `text` is the index in `texts_` of each keyed body's envelope.
        """
        if keys.values:
            pairs, number = numbered(text * len(keys.values) + keys.number, len(texts_) * len(keys.values))
            bodies["text"][keys.at] = number + len(self.texts)
            envelope, key = np.divmod(pairs, len(keys.values))
            values = keys.values
            self.texts += [with_key(texts_[i], values[k]) for i, k in zip(envelope.tolist(), key.tolist(), strict=True)]
        self.bodies.append(bodies)
        self.counted += len(bodies)
        return self.counted - len(bodies)

    def block(self, lsn: int, lookup: Lookup) -> tuple[Block, int]:
        """Return the block at `lsn`, and the index of its first body.

        Raises:
            GoneError: the segment that contained the block has been deleted.
            NowhereError: the bytes there are not a block.
        """
        if lsn not in self.blocks:
            block = look_up(lookup, lsn)
            bodies_at = self.have(block.bodies, block.keys, [block.text], np.zeros(len(block.keys.at), np.int64))
            self.blocks[lsn] = (block, bodies_at)
        return self.blocks[lsn]

    def identities(self) -> IdentityColumns | None:
        """Return the identity of the message of each body; None if they are not wanted."""
        if not self.ids:
            return None
        every = [] if self.published is None else [self.published]
        if self.elsewhere:
            every.append(_together(self.elsewhere))
        found = concatenated([identities_of(each.blocks) for each in every])
        if len(every) == 1 and len(found.message_id) == self.counted:  # of one buffer, in the order of the bodies
            return found
        at = np.full(self.counted, -1, np.int64)
        number = 0
        for each in every:
            owner, nth = ragged(each.blocks.messages)
            at[each.bodies[owner] + nth] = number + np.arange(len(owner))
            number += len(owner)
        return found.take(at)


def _together(found: dict[int, Block]) -> Identified:
    """Return blocks that were looked up in one buffer."""
    blocks = list(found.values())
    sizes = integers([len(block.data) for block in blocks])
    data = np.concatenate([*(block.data for block in blocks), np.zeros(ROOM, np.uint8)])
    envelope, count = (integers(each) for each in zip(*((b.envelope, len(b.bodies)) for b in blocks), strict=True))
    return Identified(Blocks(data, np.cumsum(sizes) - sizes, envelope, count), integers(list(found)))


def events(
    records: Records, operations: Operations, lookup: Lookup, snapshot_lsn: int | None = None, *, ids: bool = False
) -> Events:
    """Return the events in some records.

    Args:
        records: records of the log or of a snapshot.
        operations: the operations in these records.
        lookup: reads blocks from other parts of the log.
        snapshot_lsn: the LSN at which the snapshot was taken; None for records of the log.
        ids: whether to read the identities of messages that are published or copied.
    """
    builder = Builder(records, operations, ids)
    _published(builder)
    _placed(builder, lookup)
    _settled(builder)
    _moved(builder, lookup)
    _returned(builder)
    _marked(builder, snapshot_lsn)
    _handed_out(builder)
    _delivered(builder)
    _taken(builder, lookup, snapshot_lsn)
    if snapshot_lsn is not None:
        _held(builder, snapshot_lsn)
    rows = np.concatenate(builder.rows) if builder.rows else np.empty(0, EVENT)
    rows = rows[np.lexsort((rows["order"], rows["lsn"]))]
    found = np.concatenate(builder.bodies) if builder.bodies else np.empty(0, BODY)
    return Events(rows, builder.texts, found, builder.identities())


def _published(builder: Builder) -> None:
    data, operations = builder.records.data, builder.operations
    chosen = operations.of_kind(Kind.PUBLISH)
    at = operations.at[chosen]
    number = integers(take(data, at, U32))
    block_at = at + 4 + TARGET.itemsize * number
    blocks = take(data, block_at, BLOCK)
    count = blocks["count"].astype(np.int64)
    envelope_at = block_at + BLOCK.itemsize
    text, values = envelopes(data, envelope_at)
    where = (data, envelope_at, integers(blocks["envelope"]), count)
    found, keyed = bodies(*where), keys(*where)
    begin = builder.have(found, keyed, values, np.repeat(text, count)[keyed.at])
    bodies_at = np.cumsum(count) - count
    if builder.ids:
        builder.published = Identified(Blocks(*where), bodies_at + begin)
    run, nth = ragged(number)
    targets = take(data, at[run] + 4 + TARGET.itemsize * nth, TARGET)
    rows = builder.add(chosen[run], Happened.PUBLISHED, len(run))
    rows["queue"], rows["first"], rows["count"] = targets["queue"], targets["first"], count[run]
    rows["came"] = blocks["came"][run]
    record = operations.record[chosen]
    rows["block"] = (builder.records.lsn[record] + block_at - builder.records.at[record])[run]
    rows["text"] = text[run] + len(builder.texts)
    builder.texts += values
    rows["bodies"] = bodies_at[run] + begin


def _placed(builder: Builder, lookup: Lookup) -> None:
    """Add the publication of prepared messages, whose blocks are in earlier records."""
    data, operations = builder.records.data, builder.operations
    chosen = operations.of_kind(Kind.PLACED)
    at = operations.at[chosen]
    number = integers(take(data, at, U32))
    address = take(data, at + 4 + TARGET.itemsize * number, np.dtype([("lsn", "<u8"), ("count", "<u4")]))
    for i, (lsn, count) in enumerate(address.tolist()):
        run = np.zeros(int(number[i]), np.int64)
        targets = take(data, at[i] + 4 + TARGET.itemsize * np.arange(len(run)), TARGET)
        rows = builder.add(chosen[i] + run, Happened.PUBLISHED, len(run))
        rows["queue"], rows["first"], rows["count"] = targets["queue"], targets["first"], count
        _look_up(builder, rows, lsn, lookup)


def _look_up(builder: Builder, rows: Rows, lsn: int, lookup: Lookup) -> None:
    """Complete the events of a block at `lsn` with its arrival time, envelope and bodies."""
    rows["block"], rows["text"] = lsn, -1
    try:
        block, bodies_at = builder.block(lsn, lookup)
    except GoneError:
        return
    except NowhereError:
        rows["came"] = NOWHERE
        return
    if int((rows["index"] + rows["count"]).max(initial=0)) > len(block.bodies):
        rows["came"] = NOWHERE
        return
    rows["came"], rows["text"] = block.came, len(builder.texts)
    rows["bodies"] = bodies_at + rows["index"]
    builder.texts.append(block.text)
    if builder.ids and rows["what"][0] in (Happened.PUBLISHED, Happened.COPIED):
        builder.elsewhere[bodies_at] = block


def _settled(builder: Builder) -> None:
    data, operations = builder.records.data, builder.operations
    chosen = operations.of_kind(Kind.SETTLE)
    at = operations.at[chosen]
    heads = take(data, at, SETTLE)
    owner, nth = ragged(heads["ranges"].astype(np.int64))
    ranges = take(data, at[owner] + SETTLE.itemsize + RANGE.itemsize * nth, RANGE)
    rows = builder.add(chosen[owner], Happened.SETTLED, len(owner))
    rows["queue"], rows["code"] = heads["queue"][owner], heads["outcome"][owner]
    rows["first"], rows["count"] = ranges["first"], ranges["count"]
    rows["what"][_by_group(operations, chosen)[owner]] = Happened.SETTLED_BY_GROUP


def _by_group(operations: Operations, settlements: Ints) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return which settlements belong to a group of bulk readers: those followed immediately by RELEASED."""
    released = operations.of_kind(Kind.RELEASED)
    if not len(released):
        return np.zeros(len(settlements), bool)
    behind = operations.order[settlements] + operations.length[settlements] + OPERATION_HEAD.itemsize
    keys = (operations.record[settlements] << 32) + behind
    return np.isin(keys, (operations.record[released] << 32) + operations.order[released])


def _moved(builder: Builder, lookup: Lookup) -> None:
    data, operations, records = builder.records.data, builder.operations, builder.records
    for i in operations.of_kind(Kind.RELOCATE, Kind.READDRESSED).tolist():
        at = begin = int(operations.at[i])
        number = int.from_bytes(data[at : at + 2].tobytes(), "little")
        at += 2
        moves = []
        for _ in range(number):
            queue, count = np.frombuffer(data, MOVE, 1, at)[0].tolist()
            at += MOVE.itemsize
            positions = integers(np.frombuffer(data, U64, count, at))
            places = integers(np.frombuffer(data, U32, count, at + 8 * count))
            at += 12 * count
            moves.append((queue, positions, places))
        block = int(records.lsn[operations.record[i]]) + at - begin
        look_up: Lookup = partial(_within, data, at - block)
        if operations.kind[i] == Kind.READDRESSED:
            block, look_up = int(np.frombuffer(data, U64, 1, at)[0]), lookup
        for queue, positions, places in moves:
            first, count = runs(positions, places)
            rows = builder.add(np.full(len(first), i), Happened.MOVED, len(first))
            rows["queue"] = queue
            rows["first"], rows["count"], rows["index"] = positions[first], count, places[first]
            _look_up(builder, rows, block, look_up)


def _within(data: Bytes, shift: int, lsn: int, length: int) -> bytes:
    """Look up a block in this window, whose offsets are its LSNs plus `shift`."""
    return data[lsn + shift : lsn + shift + length].tobytes()


def runs(*columns: Ints) -> tuple[Ints, Ints]:
    """Find runs in which every column grows by one from row to row. Returns first rows and lengths."""
    if not len(columns[0]):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    breaks = np.zeros(len(columns[0]), bool)
    breaks[0] = True
    for column in columns:
        breaks[1:] |= np.diff(column) != 1
    first = np.flatnonzero(breaks)
    return first, np.diff(np.r_[first, len(breaks)])


def _returned(builder: Builder) -> None:
    data, operations = builder.records.data, builder.operations
    chosen = operations.of_kind(Kind.RETURNED)
    at = operations.at[chosen]
    heads = take(data, at, MOVE)
    owner, nth = ragged(heads["count"].astype(np.int64))
    pairs = take(data, at[owner] + MOVE.itemsize + RANGE.itemsize * nth, RANGE)
    rows = builder.add(chosen[owner], Happened.RETURNED, len(owner))
    rows["queue"], rows["first"], rows["count"], rows["index"] = (
        heads["queue"][owner],
        pairs["first"],
        1,
        pairs["count"],
    )


def _marked(builder: Builder, snapshot_lsn: int | None) -> None:
    """Add the numbers of failed deliveries of messages with marks."""
    operations, records = builder.operations, builder.records
    for i in operations.of_kind(Kind.MARKED).tolist():
        queue, marks = decode_marked(records.payload(int(operations.record[i])))
        what = Happened.MARKED if snapshot_lsn is None else Happened.MARKED_IN_SNAPSHOT
        rows = builder.add(np.full(len(marks), i), what, len(marks))
        if snapshot_lsn is not None:
            rows["lsn"] = rows["frame"] = snapshot_lsn
        rows["queue"], rows["count"] = queue, 1
        rows["first"], rows["index"] = list(marks), [each.failures for each in marks.values()]


def _handed_out(builder: Builder) -> None:
    chosen = builder.operations.of_kind(Kind.DELIVERED)
    targets = take(builder.records.data, builder.operations.at[chosen], TARGET)
    rows = builder.add(chosen, Happened.HANDED_OUT, len(chosen))
    rows["queue"], rows["first"], rows["count"] = targets["queue"], integers(targets["first"]) - 1, 1


def _delivered(builder: Builder) -> None:
    """Add deliveries. Parts have variable length, so each pass takes the next part of every record at once."""
    data, operations = builder.records.data, builder.operations
    chosen = operations.of_kind(Kind.DELIVERIES)
    heads = take(data, operations.at[chosen], DELIVERIES)
    at, left = operations.at[chosen] + DELIVERIES.itemsize, integers(heads["parts"])
    more = np.flatnonzero(left > 0)
    while len(more):
        parts = take(data, at[more], PART)
        name, ranges = integers(parts["name"]), integers(parts["ranges"])
        begin = at[more] + PART.itemsize
        text, values = texts(data, begin, name)
        owner, nth = ragged(ranges)
        found = take(data, (begin + name)[owner] + RANGE.itemsize * nth, RANGE)
        rows = builder.add(chosen[more][owner], Happened.DELIVERED, len(owner))
        rows["queue"], rows["came"] = heads["queue"][more][owner], heads["time"][more][owner]
        rows["code"], rows["text"] = parts["flags"][owner], text[owner] + len(builder.texts)
        rows["first"], rows["count"] = found["first"], found["count"]
        builder.texts += values
        at[more] = begin + name + RANGE.itemsize * ranges
        left[more] -= 1
        more = more[left[more] > 0]


def _taken(builder: Builder, lookup: Lookup, snapshot_lsn: int | None) -> None:
    """Add reservations. A HELD record also refers to copies of messages that had not been in the log before."""
    operations, records = builder.operations, builder.records
    for i in operations.of_kind(Kind.HELD).tolist():
        held = decode_held(records.payload(int(operations.record[i])))
        rows = builder.add(np.full(len(held.ranges), i), Happened.TAKEN, len(held.ranges))
        if snapshot_lsn is not None:
            rows["lsn"] = rows["frame"] = snapshot_lsn
        rows["queue"] = held.queue
        rows["first"], rows["count"] = [each.first for each in held.ranges], [each.length for each in held.ranges]
        for first, length, lsn, start in held.copies:
            rows = builder.add(np.array([i]), Happened.COPIED, 1)
            rows["queue"], rows["first"], rows["count"], rows["index"] = held.queue, first, length, start
            _look_up(builder, rows, lsn, lookup)


def _held(builder: Builder, lsn: int) -> None:
    data, operations = builder.records.data, builder.operations
    for i in operations.of_kind(Kind.QUEUE_STATE).tolist():
        at = int(operations.at[i])
        queue, following, _, number, counted = np.frombuffer(data, STATE, 1, at)[0].tolist()
        rows = builder.add(np.array([i]), Happened.NEXT, 1)
        rows["queue"], rows["lsn"], rows["frame"], rows["first"], rows["count"] = queue, lsn, lsn, following, 1
        at += STATE.itemsize
        firsts = integers(np.frombuffer(data, U64, number, at))
        blocks = integers(np.frombuffer(data, U64, number, at + 8 * number))
        counts = integers(np.frombuffer(data, U32, number, at + 16 * number))
        indexes = integers(np.frombuffer(data, U32, number, at + 20 * number))
        kept = np.flatnonzero(indexes & TRANSIENT == 0)
        rows = builder.add(np.full(len(kept), i), Happened.HELD_IN_SNAPSHOT, len(kept))
        rows["queue"], rows["lsn"], rows["frame"] = queue, lsn, lsn
        rows["first"], rows["count"] = firsts[kept], counts[kept]
        rows["block"], rows["index"] = blocks[kept], indexes[kept]
        returned = np.frombuffer(data, RANGE, counted, at + 24 * number)
        rows = builder.add(np.full(counted, i), Happened.COUNTED, counted)
        rows["queue"], rows["lsn"], rows["frame"], rows["count"] = queue, lsn, lsn, 1
        rows["first"], rows["index"] = returned["first"], returned["count"]


def by_bucket(events: Events) -> Events:
    """Split events at the borders of buckets."""
    rows = events.rows
    low = rows["first"] >> BUCKET_BITS
    pieces = ((rows["first"] + rows["count"] - 1) >> BUCKET_BITS) - low + 1
    if not len(rows) or pieces.max() == 1:
        return events
    owner, nth = ragged(pieces)
    cut = rows[owner]
    begin = np.maximum(cut["first"], (low[owner] + nth) << BUCKET_BITS)
    end = np.minimum(cut["first"] + cut["count"], (low[owner] + nth + 1) << BUCKET_BITS)
    skipped = begin - cut["first"]
    cut["first"], cut["count"] = begin, end - begin
    cut["index"] += skipped
    cut["bodies"] += np.where(cut["bodies"] >= 0, skipped, 0)
    return Events(cut, events.texts, events.bodies, events.ids)


def chosen(events: Events, rows: Rows) -> Events:
    """Select `rows` of `events`, with only the texts and bodies that they refer to."""
    rows = rows.copy()
    told = np.flatnonzero(rows["bodies"] >= 0)
    counts = rows["count"][told]
    owner, nth = ragged(counts)
    at = rows["bodies"][told][owner] + nth
    mine = events.bodies[at]
    ids = None if events.ids is None else events.ids.take(at)
    rows["bodies"][told] = np.cumsum(counts) - counts
    own = np.flatnonzero(mine["text"] >= 0)
    texted = np.flatnonzero(
        np.isin(rows["what"], (Happened.PUBLISHED, Happened.COPIED, Happened.DELIVERED)) & (rows["text"] >= 0)
    )
    used, numbers = numbered(np.r_[rows["text"][texted], mine["text"][own]], len(events.texts))
    rows["text"][texted], mine["text"][own] = numbers[: len(texted)], numbers[len(texted) :]
    return Events(rows, [events.texts[i] for i in used.tolist()], mine, ids)
