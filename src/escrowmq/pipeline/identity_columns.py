"""Message id, correlation id and publisher of many messages at once, without a Python object for each.

Property lists of AMQP 0-9-1, sections of AMQP 1.0 and properties of RocketMQ are read column by column. Contents that
are not as expected are read one by one (`identities.identity`), which also says what the columns must contain.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from escrowmq.columnar.contents import Extent, parts
from escrowmq.columnar.octets import ROOM, Octets, numbers, with_nulls
from escrowmq.columnar.properties import column, fields
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.records.kinds import Kind
from escrowmq.pipeline.blocks import BLOCK, ENVELOPE_HEAD, Lookup, places
from escrowmq.pipeline.columns import U32, Bytes, Ints, Rows, integers, ragged, take
from escrowmq.pipeline.events import TARGET
from escrowmq.pipeline.frames import Records
from escrowmq.pipeline.identities import KEYED, LISTED, PLAIN, PROPERTIES, MessageIdentity, identity
from escrowmq.pipeline.operations import Operations
from escrowmq.pipeline.sections import SECTIONS, text_fields

SCHEMA: Final = pa.schema(
    [
        ("queue_id", pa.int64()),
        ("position", pa.int64()),
        ("publish_lsn", pa.int64()),
        ("message_id", pa.string()),
        ("correlation_id", pa.string()),
        ("publisher", pa.string()),
    ]
)
_TEXT: Final = pa.string()
_FIELDS: Final = {0: True, 1: False, 5: True}
"""Message id, user id and correlation id in the properties of AMQP 1.0, and which of them are texts."""
ROCKETMQ: Final = 120
"""The protocol number of envelopes whose contents are those of RocketMQ (docs/internals/records.md)."""
_ROCKETMQ_HEAD: Final = 31
_HOST_SIZE_AT: Final = 24
_PROPERTIES_SIZE_AT: Final = 27
_NAMES: Final = ("UNIQ_KEY", "CORRELATION_ID")
_PROPERTY: Final = r"^(?:(?s:.*)\x02)?%s\x01(?P<value>[^\x02]*)"
"""The value of the last property of a name."""
_ADDRESS: Final = np.dtype("<u8")
_SHORT: Final = np.dtype("<u2")


class Blocks(NamedTuple):
    """Some blocks in a buffer, in the order in which they lie there.

    Args:
        data: the buffer, with ROOM behind the last block.
        at: the offset of each block's envelope.
        envelope: the length of each envelope, in bytes.
        messages: the number of messages in each block.
    """

    data: Bytes
    at: Ints
    envelope: Ints
    messages: Ints


class IdentityColumns(NamedTuple):
    """The identities of messages, as arrays of texts with nulls where the publisher gave none."""

    message_id: pa.Array
    correlation_id: pa.Array
    publisher: pa.Array

    def take(self, rows: Ints) -> IdentityColumns:
        """Return those of the messages with these indexes."""
        chosen = numbers(rows)
        return IdentityColumns(*(values.take(chosen) for values in self))


def batch(found: Records, operations: Operations, lookup: Lookup) -> pa.RecordBatch:
    """Return the identities of all messages that records publish, one row for each message on each queue."""
    parts_ = [_published(found, operations), _placed(found, operations, lookup)]
    columns = [pa.concat_arrays([each[i] for each in parts_]).cast(field.type) for i, field in enumerate(SCHEMA)]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _published(found: Records, operations: Operations) -> list[pa.Array]:
    data = found.data
    chosen = operations.of_kind(Kind.PUBLISH)
    at = operations.at[chosen]
    block_at = at + 4 + TARGET.itemsize * integers(take(data, at, U32))
    heads = take(data, block_at, BLOCK)
    blocks = Blocks(data, block_at + BLOCK.itemsize, integers(heads["envelope"]), integers(heads["count"]))
    return _of_targets(data, at, found.lsn[operations.record[chosen]], blocks)


def _placed(found: Records, operations: Operations, lookup: Lookup) -> list[pa.Array]:
    """Return rows for the messages of prepared branches, whose blocks are in earlier records, or have been deleted."""
    chosen = operations.of_kind(Kind.PLACED)
    at = operations.at[chosen]
    address = take(found.data, at + 4 + TARGET.itemsize * integers(take(found.data, at, U32)), _ADDRESS)
    known = []
    pieces: list[bytes] = []
    heads = []
    place = 0
    for i, lsn in enumerate(address.tolist()):
        block = _block(lookup, lsn)
        if block is not None:
            known.append(i)
            pieces.append(block)
            _, _, count, envelope = np.frombuffer(block, BLOCK, 1)[0].tolist()
            heads.append((place + BLOCK.itemsize, envelope, count))
            place += len(block)
    which = np.array(known, np.int64)
    buffer = np.frombuffer(b"".join((*pieces, bytes(ROOM))), np.uint8)
    blocks = Blocks(buffer, *np.array(heads, np.int64).reshape(-1, 3).T)
    return _of_targets(found.data, at[which], found.lsn[operations.record[chosen[which]]], blocks)


def _block(lookup: Lookup, lsn: int) -> bytes | None:
    """Return the block at `lsn`; None if its segment was deleted, or there is none."""
    head = lookup(lsn, BLOCK.itemsize)
    if head is None or len(head) < BLOCK.itemsize:
        return None
    length, _, count, envelope = np.frombuffer(head, BLOCK, 1)[0].tolist()
    data = lookup(lsn, 4 + length)
    fixed = BLOCK.itemsize + envelope + 4 * count
    if data is None or fixed > len(data) or len(data) != 4 + length:
        return None
    sizes = np.frombuffer(data, U32, count, BLOCK.itemsize + envelope)
    return data if fixed + int(sizes.sum(dtype=np.int64)) == len(data) else None


def _of_targets(data: Bytes, at: Ints, lsn: Ints, blocks: Blocks) -> list[pa.Array]:
    """Return the columns of a row for each message of each block, and each of its targets, which are at `at`."""
    ids = identities_of(blocks)
    run, nth = ragged(integers(take(data, at, U32)))
    targets: Rows = take(data, at[run] + 4 + TARGET.itemsize * nth, TARGET)
    target, message = ragged(blocks.messages[run])
    if len(run) != len(at) or (run != np.arange(len(at))).any():
        ids = ids.take((np.cumsum(blocks.messages) - blocks.messages)[run][target] + message)
    queue, first = integers(targets["queue"]), integers(targets["first"])
    return [*map(numbers, (queue[target], first[target] + message, lsn[run][target])), *ids]


def identities_of(blocks: Blocks) -> IdentityColumns:
    """Return the identities of all messages of some blocks, one block after the other."""
    data, at, envelope, count = blocks
    block, begin, size = places(data, at, envelope, count)
    form = data[at]
    octets = Octets(data.data)
    rows: list[Ints] = []
    found: list[IdentityColumns] = []
    for number in np.unique(form).tolist():
        chosen = np.flatnonzero((form == number)[block])
        rows.append(chosen)
        starts, ends = begin[chosen], (begin + size)[chosen]
        if number == PLAIN:
            mine = np.flatnonzero(form == number)
            of_blocks = _listed(octets, _lists(data, at[mine]))
            found.append(of_blocks.take(np.searchsorted(mine, block[chosen])))
        elif number in LISTED:
            contents = parts(octets, Extent(starts, ends), keyed=number == KEYED)
            found.append(_listed(octets, contents.properties))
        else:
            read = _READERS.get(number, _unread)
            columns, sound = read(data, octets, Extent(starts, ends))
            heads = [data[a : a + n].tobytes() for a, n in zip(at.tolist(), envelope.tolist(), strict=True)]
            others = np.flatnonzero(~sound).tolist()
            bounds = ((heads[block[chosen[i]]], starts[i], ends[i]) for i in others)
            single = _one_by_one([_identity(head, data[a:b].tobytes()) for head, a, b in bounds])
            found.append(_merged(columns, single, sound))
    if len(found) == 1:
        return found[0]
    order = np.empty(len(block), np.int64)
    if rows:
        order[np.concatenate(rows)] = np.arange(len(block))
    whole = (pa.concat_arrays([each[i] for each in found]) if found else pa.nulls(0, _TEXT) for i in range(3))
    return IdentityColumns(*whole).take(order)


def _lists(data: Bytes, at: Ints) -> Extent:
    """Return where the property lists of envelopes are."""
    place = at + ENVELOPE_HEAD
    for _ in range(2):  # exchange and routing key
        place = place + 2 + integers(take(data, place, _SHORT))
    return Extent(place + 4, place + 4 + integers(take(data, place, U32)))


def _listed(octets: Octets, lists: Extent) -> IdentityColumns:
    """Return the identities in property lists."""
    found = fields(octets, lists, PROPERTIES)
    count = len(lists.starts)
    return IdentityColumns(
        *(column(octets, name, found[name], _TEXT) if name in found else pa.nulls(count, _TEXT) for name in PROPERTIES)
    )


def _sections(data: Bytes, octets: Octets, contents: Extent) -> tuple[IdentityColumns, Rows]:
    """Read messages of AMQP 1.0. Returns also which of them were read."""
    starts, ends = contents
    found, sound = text_fields(data, starts, ends - starts, _FIELDS)
    ident, user, other = (with_nulls(octets.strings(each.starts, each.ends), each.present) for each in found)
    return _as_texts((ident, other, user), sound)


def _tabled(data: Bytes, octets: Octets, contents: Extent) -> tuple[IdentityColumns, Rows]:
    """Read messages of RocketMQ. Returns also which of them were read."""
    starts, ends = contents
    whole = starts + _ROCKETMQ_HEAD <= ends
    place = np.where(whole, starts, 0)
    begin = place + _ROCKETMQ_HEAD + octets.u8(place + _HOST_SIZE_AT)
    stop = begin + octets.u32(place + _PROPERTIES_SIZE_AT)
    whole &= stop <= ends
    said = octets.strings(np.where(whole, begin, starts), np.where(whole, stop, starts))
    ident, other = (pc.struct_field(pc.extract_regex(said, _PROPERTY % name), "value") for name in _NAMES)
    return _as_texts((ident, other, pa.nulls(len(starts), pa.binary())), whole)


def _unread(data: Bytes, octets: Octets, contents: Extent) -> tuple[IdentityColumns, Rows]:
    """Read nothing."""
    return _one_by_one([]), np.zeros(len(contents.starts), bool)


def _as_texts(columns: Iterable[pa.Array], sound: Rows) -> tuple[IdentityColumns, Rows]:
    try:
        return IdentityColumns(*(values.cast(_TEXT) for values in columns)), sound
    except pa.ArrowInvalid:  # octets that are not UTF-8
        return _one_by_one([]), np.zeros(len(sound), bool)


def _merged(columns: IdentityColumns, single: IdentityColumns, sound: Rows) -> IdentityColumns:
    """Return the columns, with other values for the rows that are not `sound`."""
    if sound.all():
        return columns
    order = np.where(sound, np.arange(len(sound)), len(columns.message_id) + np.cumsum(~sound) - 1)
    return IdentityColumns(*map(pa.concat_arrays, zip(columns, single, strict=True))).take(order)


@lru_cache(256)
def _envelope(data: bytes) -> Envelope:
    return Envelope.decode(data)


def _identity(envelope: bytes, content: bytes) -> MessageIdentity:
    return identity(_envelope(envelope), content)


def _one_by_one(said: list[MessageIdentity]) -> IdentityColumns:
    return IdentityColumns(*(pa.array([each[i] for each in said], _TEXT) for i in range(len(PROPERTIES))))


_READERS: Final = {SECTIONS: _sections, ROCKETMQ: _tabled}
