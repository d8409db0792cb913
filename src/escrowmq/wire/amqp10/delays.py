"""Messages that ask to be delivered later: the annotations `x-opt-delivery-time` and `x-opt-delivery-delay` (DLY).

They work for every address. `x-opt-delivery-time` is in milliseconds since the epoch, or a timestamp;
`x-opt-delivery-delay` is in milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from escrowmq.wire.amqp10.codec.errors import CodecError
from escrowmq.wire.amqp10.codec.sections import annotates
from escrowmq.wire.amqp10.codec.types import Symbol

if TYPE_CHECKING:
    from escrowmq.core.messages.envelope import Envelope
    from escrowmq.core.queues.queue import Queue
    from escrowmq.wire.amqp10.connection import Connection

DELAYED_DELIVERY: Final = Symbol("DELAYED_DELIVERY")
"""The capability without which Qpid JMS refuses to delay messages."""
_ANNOTATED: Final = b"\x00\x53\x72"
_ASKED: Final = "x-opt-delivery-"
_NONE: Final = frozenset[int]()


def delayed_among(contents: Sequence[bytes]) -> frozenset[int]:
    """Return the numbers of those contents that may ask for a delay. Most begin with another section."""
    if _ANNOTATED not in {content[:3] for content in contents}:
        return _NONE
    return frozenset([i for i, content in enumerate(contents) if content.startswith(_ANNOTATED) and _asks(content)])


def _asks(content: bytes) -> bool:
    try:
        return annotates(content, _ASKED)
    except CodecError:
        return False


def waiting_queue(connection: Connection, envelope: Envelope, content: bytes) -> Queue | None:
    """Return the queue in which a message that may ask for a delay has to wait, or None if it is due at once.

    Raises BrokerError for a delay that is not understood, or beyond the limit.
    """
    engine = connection.broker.engine
    return engine.delays.hold(connection.vhost, engine.formats[envelope.protocol].headers(envelope, content))
