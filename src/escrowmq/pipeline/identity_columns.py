"""Message id, correlation id and publisher of many messages at once, without a Python object for each.

Property lists of AMQP 0-9-1, sections of AMQP 1.0 and properties of RocketMQ are read column by column. Contents that
are not as expected are read one by one (`identities.identity`), which also says what the columns must contain.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from escrowmq.columnar.contents import Extent, parts
from escrowmq.columnar.octets import Octets, numbers, with_nulls
from escrowmq.columnar.properties import column, fields
from escrowmq.core.messages.envelope import Envelope
from escrowmq.pipeline.blocks import ENVELOPE_HEAD, places
from escrowmq.pipeline.columns import U32, Bytes, Ints, Rows, integers, take
from escrowmq.pipeline.identities import KEYED, LISTED, PLAIN, PROPERTIES, MessageIdentity, identity
from escrowmq.pipeline.sections import SECTIONS, text_fields

MOST: Final = 1024
"""Characters of an id that the columns have; longer ids are cut off."""
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
        """Return those of the messages with these indexes; nulls for an index below zero."""
        missing = rows < 0
        chosen = pa.array(rows, pa.int64(), mask=missing) if missing.any() else numbers(rows)
        return IdentityColumns(*(values.take(chosen) for values in self))


def pack(columns: IdentityColumns) -> bytes:
    """Serialize as a compressed Arrow stream."""
    batch = pa.RecordBatch.from_arrays([*columns], names=[*IdentityColumns._fields])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def unpack(data: bytes) -> IdentityColumns:
    """Restore what `pack` has written."""
    with pa.ipc.open_stream(pa.BufferReader(data)) as reader:
        return IdentityColumns(*reader.read_next_batch().columns)


def nothing(count: int) -> IdentityColumns:
    """Return the columns of messages whose identity is not known."""
    return IdentityColumns(*(pa.nulls(count, _TEXT) for _ in PROPERTIES))


def concatenated(parts: Sequence[IdentityColumns]) -> IdentityColumns:
    """Return the columns of the messages of all parts."""
    if len(parts) == 1:
        return parts[0]
    return IdentityColumns(*map(pa.concat_arrays, zip(*parts, strict=True))) if parts else nothing(0)


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
    whole = concatenated(found)
    if len(found) > 1:
        order = np.empty(len(block), np.int64)
        order[np.concatenate(rows)] = np.arange(len(block))
        whole = whole.take(order)
    return IdentityColumns(*map(_cut, whole))


def _cut(texts: pa.Array) -> pa.Array:
    """Return the texts with at most MOST characters each."""
    longest = pc.max(pc.binary_length(texts)).as_py()
    return texts if longest is None or longest <= MOST else pc.utf8_slice_codeunits(texts, 0, MOST)


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
