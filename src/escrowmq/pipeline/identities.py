"""Message id, correlation id and publisher of messages, read from their contents by the formats of the protocols."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple
from uuid import UUID

from escrowmq.columnar.message import row
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.records.blocks import BLOCK, Block, decode_block
from escrowmq.core.records.branches import decode_placed
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.publishing import decode_publish
from escrowmq.core.records.references import Target
from escrowmq.pipeline.blocks import Lookup
from escrowmq.pipeline.columns import plain
from escrowmq.pipeline.frames import Records
from escrowmq.pipeline.operations import Operations
from escrowmq.wire.formats import FORMATS, MALFORMED

PLAIN: Final = 91
PACKED: Final = 92
KEYED: Final = 93
LISTED: Final = (PLAIN, PACKED, KEYED)
"""The protocol numbers of envelopes whose messages have property lists of AMQP 0-9-1 (docs/internals/records.md)."""
PROPERTIES: Final = ("message_id", "correlation_id", "user_id")


class MessageIdentity(NamedTuple):
    """What identifies a message to applications: texts, or None where the publisher gave none."""

    message_id: str | None = None
    correlation_id: str | None = None
    publisher: str | None = None


def identity(envelope: Envelope, content: bytes) -> MessageIdentity:
    """Return the identity of a message. It is empty for a form that is not known, and for damaged content."""
    if envelope.protocol in LISTED:
        said = row(envelope, content).properties
        return MessageIdentity(*(None if name not in said else plain(str(said[name])) for name in PROPERTIES))
    form = FORMATS.get(envelope.protocol)
    if form is None:
        return MessageIdentity()
    try:
        found = form.neutral(envelope, content)
    except MALFORMED:
        return MessageIdentity()
    user = None if found.user_id is None else plain(found.user_id.decode("utf-8", "backslashreplace"))
    return MessageIdentity(_text(found.message_id), _text(found.correlation_id), user)


def _text(value: object) -> str | None:
    """Return an id as text: a UUID in its usual form, octets in hexadecimal."""
    if value is None:
        return None
    if isinstance(value, bytes):
        return str(UUID(bytes=bytes(value))) if type(value) is not bytes and len(value) == 16 else value.hex()
    return plain(str(value))


@lru_cache(256)
def _envelope(data: bytes) -> Envelope:
    return Envelope.decode(data)


def read_block(lookup: Lookup, lsn: int) -> Block | None:
    """Return the block at `lsn`; None if its segment was deleted."""
    head = lookup(lsn, BLOCK.size)
    data = lookup(lsn, 4 + BLOCK.unpack(head)[0]) if head else None
    return None if data is None else decode_block(data, decode=_envelope)


def published(
    found: Records, operations: Operations, lookup: Lookup, needles: tuple[bytes, ...] = ()
) -> Iterator[tuple[int, list[Target], Block]]:
    """Yield the runs that records publish: the record's LSN, the targets, the block. With `needles`, only those whose
    blocks contain one of these octets.
    """
    for i in operations.of_kind(Kind.PUBLISH, Kind.PLACED).tolist():
        at = int(operations.at[i])
        payload = found.data.data[at : at + int(operations.length[i])]
        lsn = int(found.lsn[operations.record[i]])
        if operations.kind[i] == Kind.PLACED:
            placed = decode_placed(payload)
            block = read_block(lookup, placed.lsn)
            if block is not None:
                yield lsn, placed.targets, block
            continue
        data = bytes(payload)
        if needles and not any(needle in data for needle in needles):
            continue
        publish = decode_publish(data)
        yield lsn, publish.targets, decode_block(data, publish.block, decode=_envelope)
