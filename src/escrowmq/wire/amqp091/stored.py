"""Stored messages of any form as AMQP 0-9-1 has them, one by one, for readers that get contents as they are stored.

Octets that are not of their form are no reason to fail: a reader of a whole queue could never pass such a message. Its
body is then the whole content.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from escrowmq.core.messages.envelope import Envelope
from escrowmq.wire.amqp091.keyed import BETWEEN, KEYED
from escrowmq.wire.amqp091.packed import PACKED, unpack
from escrowmq.wire.amqp091.properties import NO_PROPERTIES
from escrowmq.wire.amqp091.publication import PROTOCOL
from escrowmq.wire.formats import FORMATS

SMALLEST: Final = 25
"""The octets of packed content without properties, not even their flags, and without a body."""
_SIZE: Final = struct.Struct(">I")
LEAST_HEADER: Final = 12
"""The octets of a header frame up to the properties: class, weight and body size."""


class StoredParts(NamedTuple):
    """A message: the routing key if its content has one, otherwise empty; its property list; its body."""

    routing_key: bytes
    properties: bytes
    body: bytes


def stored_parts(envelope: Envelope, content: bytes) -> StoredParts:
    """Return the parts of a message whose stored content is `content`. It is not a dead letter, unless its history is
    in the properties that its envelope has.

    Content that is not of the form of its envelope is a body without properties.
    """
    if envelope.protocol == PACKED:
        return StoredParts(b"", *unpack(content)) if is_packed(content) else _malformed(content)
    if envelope.protocol == KEYED:
        at = 1 + content[0] + len(BETWEEN) if content else 0
        packed = content[at:]
        if not content or not is_packed(packed):
            return _malformed(content)
        return StoredParts(content[1 : at - len(BETWEEN)], *unpack(packed))
    if envelope.protocol == PROTOCOL:
        return StoredParts(b"", envelope.header, content)
    try:
        own, body = FORMATS[PROTOCOL].encode(FORMATS[envelope.protocol].neutral(envelope, content))
    except (ValueError, struct.error):
        return _malformed(content)
    return StoredParts(b"", own.header, body)


def is_packed(content: bytes) -> bool:
    """Return whether the sizes of packed content agree with its length."""
    if len(content) < SMALLEST:
        return False
    size = int(_SIZE.unpack_from(content)[0])
    end = 4 + size
    if size < LEAST_HEADER or end + 9 > len(content):
        return False
    return end + 9 + int(_SIZE.unpack_from(content, end + 4)[0]) == len(content)


def _malformed(content: bytes) -> StoredParts:
    return StoredParts(b"", NO_PROPERTIES, content)
