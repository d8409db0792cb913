"""The columns of a block of stored messages, whatever forms their contents have.

Rows are read form by form: plain contents, whose properties are in their envelopes; packed and keyed contents; and
contents of other protocols, which are translated one by one and packed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cached_property
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from escrowmq.columnar import headers, properties
from escrowmq.columnar.contents import ContentParts, Extent, parts
from escrowmq.columnar.octets import ROOM, Octets, Places, as_utf8, numbers
from escrowmq.columnar.properties import Field, fields
from escrowmq.wire.amqp091.bulk import Bulk, Strings
from escrowmq.wire.amqp091.keyed import KEYED
from escrowmq.wire.amqp091.packed import PACKED, pack
from escrowmq.wire.amqp091.publication import PROTOCOL
from escrowmq.wire.amqp091.stored import stored_parts

_OWN: Final = (PROTOCOL, PACKED, KEYED)


class BlockColumns:
    """The messages of a block from the broker, as columns with one value for each.

    Only columns that are asked for are read. `wanted` are the names of the properties that will be asked for, with
    `headers`.
    """

    def __init__(self, bulk: Bulk, wanted: Collection[str]) -> None:
        self.count = bulk.count
        ends = np.frombuffer(bulk.run_ends, np.uint32)
        self._lengths = np.diff(ends, prepend=np.uint32(0))
        self._envelopes = np.repeat(np.frombuffer(bulk.run_envelopes, np.uint32), self._lengths)
        self._exchanges = bulk.exchanges
        forms = np.frombuffer(bulk.forms, np.uint8)[self._envelopes]
        present = np.bincount(forms, minlength=1).nonzero()[0].tolist() or [PROTOCOL]
        alone = len(present) == 1
        self._rows: list[Places] = [
            np.arange(self.count) if alone else np.nonzero(forms == form)[0] for form in present
        ]
        self._groups: list[_FormRows] = [
            _group(form, bulk, rows, self._envelopes[rows], wanted)
            for form, rows in zip(present, self._rows, strict=True)
        ]

    def of_runs(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return one value for each message, given one for each run."""
        return np.repeat(values, self._lengths)

    def exchange(self) -> pa.Array:
        return as_utf8(_binaries(self._exchanges)).take(numbers(self._envelopes))

    def routing_key(self) -> pa.Array:
        return self._joined(lambda group: group.routing_key())

    def property(self, name: str, kind: pa.DataType) -> pa.Array:
        """Return a property as an array of type `kind`, with nulls where it is absent."""
        return self._joined(lambda group: group.property(name, kind))

    def headers(self, kind: pa.DataType) -> pa.Array:
        """Return the headers as an array of maps from names to texts, null where there are none."""
        return self._joined(lambda group: group.headers(kind))

    def body(self) -> pa.Array:
        """Return the bodies as binaries. If all contents are plain, they are not copied."""
        return self._joined(lambda group: group.body())

    def _joined(self, column: Callable[[_FormRows], pa.Array]) -> pa.Array:
        if len(self._groups) == 1:
            return column(self._groups[0])
        order = np.empty(self.count, np.int64)
        order[np.concatenate(self._rows)] = np.arange(self.count)
        return pa.concat_arrays([column(group) for group in self._groups]).take(numbers(order))


class _FormRows(Protocol):
    """The rows of a block whose contents have one form."""

    def routing_key(self) -> pa.Array: ...
    def property(self, name: str, kind: pa.DataType) -> pa.Array: ...
    def headers(self, kind: pa.DataType) -> pa.Array: ...
    def body(self) -> pa.Array: ...


class _Plain:
    """Rows whose properties are in their envelopes. These are read once, and spread."""

    def __init__(self, bulk: Bulk, rows: Places, envelopes: npt.NDArray[Any], wanted: Collection[str]) -> None:
        self._bulk = bulk
        self._rows = rows
        self._envelopes = numbers(envelopes)
        self._wanted = wanted

    @cached_property
    def _octets(self) -> Octets:
        return Octets(bytes(self._bulk.properties.data) + bytes(ROOM))

    @cached_property
    def _fields(self) -> dict[str, Field]:
        return fields(self._octets, _extent(self._bulk.properties), self._wanted)

    def routing_key(self) -> pa.Array:
        return self._spread(as_utf8(_binaries(self._bulk.routing_keys)))

    def property(self, name: str, kind: pa.DataType) -> pa.Array:
        field = self._fields.get(name)
        if field is None:
            return pa.nulls(len(self._rows), kind)
        return self._spread(properties.column(self._octets, name, field, kind))

    def headers(self, kind: pa.DataType) -> pa.Array:
        field = self._fields.get(properties.HEADERS)
        if field is None:
            return pa.nulls(len(self._rows), kind)
        return self._spread(headers.column(self._octets, field, kind))

    def body(self) -> pa.Array:
        contents = self._bulk.contents
        if len(self._rows) == self._bulk.count:
            return _binaries(contents)
        starts, ends = _extent(contents)
        return Octets(contents.data).strings(starts[self._rows], ends[self._rows])

    def _spread(self, values: pa.Array) -> pa.Array:
        if values.null_count == len(values):
            return pa.nulls(len(self._rows), values.type)
        return values.take(self._envelopes)


class _Packed:
    """Rows whose contents have property lists of their own. `keys` are their routing keys, if not in the contents."""

    def __init__(
        self, octets: Octets, contents: Extent, wanted: Collection[str], keys: Callable[[], pa.Array] | None
    ) -> None:
        self._octets = octets
        self._contents = contents
        self._wanted = wanted
        self._keys = keys

    @cached_property
    def _parts(self) -> ContentParts:
        return parts(self._octets, self._contents, keyed=self._keys is None)

    @cached_property
    def _fields(self) -> dict[str, Field]:
        return fields(self._octets, self._parts.properties, self._wanted)

    def routing_key(self) -> pa.Array:
        return as_utf8(self._octets.strings(*self._parts.routing_key)) if self._keys is None else self._keys()

    def property(self, name: str, kind: pa.DataType) -> pa.Array:
        field = self._fields.get(name)
        if field is None:
            return pa.nulls(len(self._contents.starts), kind)
        return properties.column(self._octets, name, field, kind)

    def headers(self, kind: pa.DataType) -> pa.Array:
        field = self._fields.get(properties.HEADERS)
        if field is None:
            return pa.nulls(len(self._contents.starts), kind)
        return headers.column(self._octets, field, kind)

    def body(self) -> pa.Array:
        return self._octets.strings(*self._parts.body)


def _group(form: int, bulk: Bulk, rows: Places, envelopes: npt.NDArray[Any], wanted: Collection[str]) -> _FormRows:
    plain = _Plain(bulk, rows, envelopes, wanted)
    if form == PROTOCOL:
        return plain
    if form in _OWN:
        starts, ends = _extent(bulk.contents)
        own = Extent(starts[rows], ends[rows])
        return _Packed(Octets(bulk.contents.data), own, wanted, None if form == KEYED else plain.routing_key)
    packed = list(_translated(bulk, rows, envelopes))
    offsets = np.zeros(len(packed) + 1, np.int64)
    np.cumsum([len(content) for content in packed], out=offsets[1:])
    return _Packed(Octets(b"".join(packed)), Extent(offsets[:-1], offsets[1:]), wanted, plain.routing_key)


def _translated(bulk: Bulk, rows: Places, envelopes: npt.NDArray[Any]) -> list[bytes]:
    """Return the contents of `rows`, which are of another protocol, as packed content."""
    known = {number: bulk.envelope(number) for number in np.unique(envelopes).tolist()}
    found = []
    for row, number in zip(rows.tolist(), envelopes.tolist(), strict=True):
        _, props, body = stored_parts(known[number], bulk.contents[row])
        found.append(pack(props, body))
    return found


def _binaries(strings: Strings) -> pa.Array:
    buffers = [None, pa.py_buffer(strings.offsets), pa.py_buffer(strings.data)]
    return pa.Array.from_buffers(pa.binary(), len(strings.offsets) - 1, buffers)


def _extent(strings: Strings) -> Extent:
    offsets = np.frombuffer(strings.offsets, np.uint32).astype(np.int64)
    return Extent(offsets[:-1], offsets[1:])
