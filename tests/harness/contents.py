"""Messages in the core, in the terms of AMQP 0-9-1."""

from __future__ import annotations

from escrowmq.core.messages.entry import Entry
from escrowmq.core.messages.envelope import Envelope
from escrowmq.wire.amqp010.content import PROTOCOL as AMQP010
from escrowmq.wire.amqp010.content import unpack as unpack_transfer
from escrowmq.wire.amqp091.keyed import KEYED, packed_part
from escrowmq.wire.amqp091.packed import PACKED, unpack
from escrowmq.wire.amqp091.properties import Properties


def parts(envelope: Envelope, content: bytes) -> tuple[bytes, bytes]:
    """Return the properties and the body of a message, for any form of its content. Of AMQP 0-10, the priority
    is all that counts.
    """
    if envelope.protocol == AMQP010:
        return Properties(priority=envelope.priority).encode(), unpack_transfer(content).body
    if envelope.protocol == KEYED:
        return unpack(packed_part(content))
    return unpack(content) if envelope.protocol == PACKED else (envelope.header, content)


def body_of(entry: Entry) -> bytes:
    """Return the body of a message in a queue."""
    return parts(entry.run.envelope, entry.content)[1]
