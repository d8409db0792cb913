"""Messages in the core, in the terms of AMQP 0-9-1."""

from __future__ import annotations

from escrowmq.core.messages.entry import Entry
from escrowmq.core.messages.envelope import Envelope
from escrowmq.wire.amqp091.keyed import KEYED, packed_part
from escrowmq.wire.amqp091.packed import PACKED, unpack


def parts(envelope: Envelope, content: bytes) -> tuple[bytes, bytes]:
    """Return the properties and the body of a message, for any form of its content."""
    if envelope.protocol == KEYED:
        return unpack(packed_part(content))
    return unpack(content) if envelope.protocol == PACKED else (envelope.header, content)


def body_of(entry: Entry) -> bytes:
    """Return the body of a message in a queue."""
    return parts(entry.run.envelope, entry.content)[1]
