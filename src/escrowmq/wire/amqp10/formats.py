"""The form of AMQP 1.0 content, for the core: sections, from the message annotations on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from escrowmq.wire.amqp10.annotations import annotated
from escrowmq.wire.amqp10.codec import sections
from escrowmq.wire.amqp10.codec.encoding import encode
from escrowmq.wire.amqp10.codec.errors import CodecError
from escrowmq.wire.amqp10.codec.types import Char, Decimal32, Decimal64, Decimal128, Described, Symbol, Timestamp, Value
from escrowmq.wire.amqp10.translation import from_neutral, to_neutral

if TYPE_CHECKING:
    from collections.abc import Mapping

    from escrowmq.core.messages.envelope import Envelope
    from escrowmq.wire.neutral import Neutral


class SectionsFormat:
    """The content consists of sections; the header section is in the envelope."""

    keyed = False

    def single_out(self, envelope: Envelope, content: bytes) -> tuple[Envelope, bytes]:
        """Return the message as it is."""
        return envelope, content

    def headers(self, envelope: Envelope, content: bytes) -> Mapping[str, Any]:
        """Return the application properties, and the message annotations whose names begin with `x-`.

        Values are those that a publisher of AMQP 0-9-1 would have sent; values that it cannot send are left out. A
        message whose sections are malformed has no headers.
        """
        try:
            layout = sections.layout(content)
            found = sections.read_map(content, layout.application_properties)
            annotations = sections.read_map(content, layout.message_annotations)
        except CodecError:
            return {}
        found = {name: value for name, value in annotations.items() if str(name).startswith("x-")} | found
        return {str(name): header_value(value) for name, value in found.items() if is_header(value)}

    def annotated(self, content: bytes, annotations: Mapping[str, bytes]) -> bytes:
        """Return the content with further message annotations. The bare message is unchanged (MSG-2)."""
        return annotated(content, {encode(Symbol(name)): value for name, value in annotations.items()})

    def neutral(self, envelope: Envelope, content: bytes) -> Neutral:
        """Return the message in the neutral form."""
        return to_neutral(envelope, content)

    def encode(self, message: Neutral) -> tuple[Envelope, bytes]:
        """Return the message as sections."""
        return from_neutral(message)


def is_header(value: Value) -> bool:
    """Return whether AMQP 0-9-1 can express a value."""
    return not isinstance(value, Described | Decimal32 | Decimal64 | Decimal128)


def header_value(value: Value) -> Any:
    """Return a value as a publisher of AMQP 0-9-1 would have sent it: times in seconds, symbols as text."""
    if isinstance(value, Symbol | Char):
        return str(value)
    if isinstance(value, Timestamp):
        return Timestamp(value // 1000)
    if isinstance(value, dict):
        return {str(key): header_value(item) for key, item in value.items() if is_header(item)}
    if isinstance(value, list):
        return [header_value(item) for item in value if is_header(item)]
    return value
