"""The interface through which the core asks a protocol about the content of its messages.

The content of a message stays in the form in which it arrived, so only its protocol can read it. A protocol provides
one `Format` for each number that it uses in `Envelope.protocol`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from escrowmq.core.messages.envelope import Envelope


class Format(Protocol):
    """Reads the content of stored messages of one form.

    With `keyed`, each content has its own routing key, and that of the envelope is empty.
    """

    keyed: bool

    def headers(self, envelope: Envelope, content: bytes) -> Mapping[str, Any]:
        """Return the headers by which a headers exchange routes the message."""
        ...

    def annotated(self, content: bytes, annotations: Mapping[str, bytes]) -> bytes:
        """Return the content with the annotations that consumers have added (`Marks.annotations`). A form that has no
        place for them leaves them out.
        """
        ...

    def single_out(self, envelope: Envelope, content: bytes) -> tuple[Envelope, bytes]:
        """Return the message with an envelope that has its routing key, and with its content in a form that is not
        `keyed`.
        """
        ...
