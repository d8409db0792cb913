"""Keyed content: routing key, property list and body of one message together.

Messages of one exchange whose routing keys differ, and which go to the same queues, are stored in this form, so that
they share an envelope and form runs. The form is that of a delivery on channel 1, from the routing key on. It therefore
ends with packed content.

    octets   0        length of the routing key, k
             1–k      routing key
             then     end of the method frame, type and channel of the header frame: ce 02 00 01
             then     packed content
"""

from __future__ import annotations

from typing import Final

from escrowmq.core.messages.envelope import Envelope
from escrowmq.wire.amqp091 import packed
from escrowmq.wire.amqp091.packed import PACKED

_LONGEST: Final = 255
KEYED: Final = 93
"""The protocol number of envelopes whose messages have keyed content. The routing key of such an envelope is empty."""
BETWEEN: Final = b"\xce\x02\x00\x01"
"""The octets between the routing key and the packed content."""


def join(routing_key: bytes, content: bytes) -> bytes:
    """Return the keyed content of a message. The routing key has at most 255 octets, and `content` is packed."""
    return b"".join((bytes((len(routing_key),)), routing_key, BETWEEN, content))


def packed_part(content: bytes) -> bytes:
    """Return the packed content in keyed content."""
    return content[1 + content[0] + len(BETWEEN) :]


def routing_key_of(envelope: Envelope, content: bytes) -> str:
    """Return the routing key of a message, for any form of its content."""
    return content[1 : 1 + content[0]].decode() if envelope.protocol == KEYED else deliverable_key(envelope.routing_key)


def deliverable_key(key: str) -> str:
    """Return a routing key as AMQP 0-9-1 can deliver it. One that has no short string is empty: earlier versions stored
    tags of RocketMQ of any length, and tags that are not UTF-8.
    """
    if key.isascii():
        return key if len(key) <= _LONGEST else ""
    octets = key.encode("utf-8", "surrogatepass")
    return key if len(octets) <= _LONGEST and octets.decode("utf-8", "replace") == key else ""


def readdressed(content: bytes, channel: bytes) -> bytes:
    """Return keyed content with another channel number (two octets) in its frames."""
    at = 1 + content[0] + len(BETWEEN)
    return content[: at - 2] + channel + packed.readdressed(content[at:], channel)


def single_out(envelope: Envelope, content: bytes) -> tuple[Envelope, bytes]:
    """Convert a message of a keyed run to packed content, and an envelope that has its routing key."""
    own = Envelope(
        envelope.exchange,
        routing_key_of(envelope, content),
        protocol=PACKED,
        durable=envelope.durable,
        priority=envelope.priority,
        ttl=envelope.ttl,
    )
    return own, packed_part(content)
