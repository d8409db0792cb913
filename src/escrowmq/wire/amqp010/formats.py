"""The form of AMQP 0-10's content, for the core and for other protocols."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from escrowmq.wire.amqp010.codec.errors import CodecError
from escrowmq.wire.amqp010.content import unpack
from escrowmq.wire.amqp010.headers import header_values, with_history
from escrowmq.wire.amqp010.translation import from_neutral, read_properties, to_neutral

if TYPE_CHECKING:
    from collections.abc import Mapping

    from escrowmq.core.messages.envelope import Envelope
    from escrowmq.wire.neutral import Neutral


class TransferFormat:
    """The content is `wire.amqp010.content`: some delivery properties, the message properties, and the body."""

    keyed = False

    def single_out(self, envelope: Envelope, content: bytes) -> tuple[Envelope, bytes]:
        """Return the message as it is."""
        return envelope, content

    def headers(self, envelope: Envelope, content: bytes) -> Mapping[str, Any]:
        """Return the application headers that a consumer would get. A malformed message has none."""
        try:
            found = read_properties(unpack(content).properties).application_headers
        except (CodecError, ValueError):
            return {}
        return header_values(with_history(envelope, found or {}))

    def annotated(self, content: bytes, annotations: Mapping[str, bytes]) -> bytes:
        """Return the content as it is: AMQP 0-10 has no annotations."""
        del annotations
        return content

    def neutral(self, envelope: Envelope, content: bytes) -> Neutral:
        """Return the message in the neutral form."""
        return to_neutral(envelope, content)

    def encode(self, message: Neutral) -> tuple[Envelope, bytes]:
        """Return the message in the form that clients of AMQP 0-10 receive."""
        return from_neutral(message)
