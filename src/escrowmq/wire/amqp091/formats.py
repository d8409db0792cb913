"""The forms of AMQP 0-9-1 content, for the core: properties in the envelope, packed content, and keyed content."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from escrowmq.wire.amqp091 import keyed
from escrowmq.wire.amqp091.death import dead_properties, delivered_properties
from escrowmq.wire.amqp091.packed import properties, unpack
from escrowmq.wire.amqp091.properties import scan
from escrowmq.wire.amqp091.translation import from_neutral, to_neutral

if TYPE_CHECKING:
    from collections.abc import Mapping

    from escrowmq.core.messages.envelope import Envelope
    from escrowmq.wire.neutral import Neutral


class PlainFormat:
    """The property list is in the envelope, and the content is the body."""

    keyed = False

    def single_out(self, envelope: Envelope, content: bytes) -> tuple[Envelope, bytes]:
        """Return the message as it is."""
        return envelope, content

    def headers(self, envelope: Envelope, content: bytes) -> Mapping[str, Any]:
        """Return the headers of the properties that a consumer would get. `content` is not read."""
        return scan(delivered_properties(envelope)).headers or {}

    def annotated(self, content: bytes, annotations: Mapping[str, bytes]) -> bytes:
        """Return the content as it is: AMQP 0-9-1 has no annotations."""
        del annotations
        return content

    def neutral(self, envelope: Envelope, content: bytes) -> Neutral:
        """Return the message in the neutral form."""
        return to_neutral(envelope, envelope.routing_key, envelope.header, content)

    def encode(self, message: Neutral) -> tuple[Envelope, bytes]:
        """Return the message with its property list in the envelope."""
        return from_neutral(message)


class PackedFormat:
    """The content is the header frame and the body frame (`wire.amqp091.packed`)."""

    keyed = False

    def single_out(self, envelope: Envelope, content: bytes) -> tuple[Envelope, bytes]:
        """Return the message as it is."""
        return envelope, content

    def headers(self, envelope: Envelope, content: bytes) -> Mapping[str, Any]:
        """Return the headers of the properties that a consumer would get."""
        props = properties(content)
        return scan(dead_properties(envelope, props) if envelope.deaths else props).headers or {}

    def annotated(self, content: bytes, annotations: Mapping[str, bytes]) -> bytes:
        """Return the content as it is: AMQP 0-9-1 has no annotations."""
        del annotations
        return content

    def neutral(self, envelope: Envelope, content: bytes) -> Neutral:
        """Return the message in the neutral form."""
        return to_neutral(envelope, envelope.routing_key, *unpack(content))

    def encode(self, message: Neutral) -> tuple[Envelope, bytes]:
        """Return the message with its property list in the envelope."""
        return from_neutral(message)


class KeyedFormat:
    """The content is packed content with the routing key before it (`wire.amqp091.keyed`)."""

    keyed = True

    def headers(self, envelope: Envelope, content: bytes) -> Mapping[str, Any]:
        """Return the headers of the properties that a consumer would get. Dead letters are never keyed."""
        return scan(properties(keyed.packed_part(content))).headers or {}

    def single_out(self, envelope: Envelope, content: bytes) -> tuple[Envelope, bytes]:
        """Return the message with packed content."""
        return keyed.single_out(envelope, content)

    def annotated(self, content: bytes, annotations: Mapping[str, bytes]) -> bytes:
        """Return the content as it is: AMQP 0-9-1 has no annotations."""
        del annotations
        return content

    def neutral(self, envelope: Envelope, content: bytes) -> Neutral:
        """Return the message in the neutral form."""
        key = keyed.routing_key_of(envelope, content)
        return to_neutral(envelope, key, *unpack(keyed.packed_part(content)))

    def encode(self, message: Neutral) -> tuple[Envelope, bytes]:
        """Return the message with its property list in the envelope."""
        return from_neutral(message)
