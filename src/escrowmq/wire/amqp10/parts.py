"""Deliveries that arrive in several frames, and those that an interrupted link has received in part (SET-4).

A link that is detached, stolen or lost amid a delivery leaves what it has received with its terminus. The attach of the
link that resumes it names the point from which the client goes on. That point is a little earlier than necessary: the
octets that arrive twice are compared, so that another message under a reused tag is recognised. After a restart of the
broker nothing is left, and the client sends the whole message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from escrowmq.core.termini.arrivals import Partial
from escrowmq.wire.amqp10.codec.errors import CodecError
from escrowmq.wire.amqp10.codec.progress import offset_of, point_at
from escrowmq.wire.amqp10.codec.states import Received
from escrowmq.wire.amqp10.errors import INVALID_FIELD, LIMIT_EXCEEDED, link_fault
from escrowmq.wire.amqp10.relievable import WithoutDeliveries

if TYPE_CHECKING:
    from escrowmq.core.access.holdings import Holding
    from escrowmq.core.conditions import BrokerError
    from escrowmq.core.termini.loan import Loan
    from escrowmq.wire.amqp10.codec.states import DeliveryState
    from escrowmq.wire.amqp10.link import Link
    from escrowmq.wire.amqp10.transactions import LocalTransaction

OVERLAP: Final = 256
"""Octets that a client sends a second time."""


class Parts(WithoutDeliveries):
    """A delivery on `link` of which more frames are to come. While it is counted, its memory can be taken back
    (`server.relief.MemoryOwner`).

    `skipped` is a resumed delivery that the broker does not know; `refusal` is why its octets are not kept. `size`
    counts the octets of the message.
    """

    __slots__ = (
        "__weakref__",
        "_held",
        "_holding",
        "_link",
        "_pieces",
        "_start",
        "number",
        "refusal",
        "resumed",
        "settled",
        "size",
        "skipped",
        "state",
        "tag",
        "transaction",
    )

    def __init__(
        self,
        link: Link,
        number: int,
        tag: bytes,
        *,
        settled: bool,
        transaction: LocalTransaction | None,
        resumed: bool = False,
        skipped: bool = False,
    ) -> None:
        self._link = link
        self.number = number
        self.tag = tag
        self.settled = settled
        self.transaction = transaction
        self.resumed = resumed
        self.skipped = skipped
        self.refusal: BrokerError | None = None
        self.state: DeliveryState | None = None  # the state that a resumed delivery has at the client
        self.size = 0
        self._pieces: list[bytes] = []
        self._held: bytes | None = None  # the octets that an earlier link received
        self._start = 0  # where the pieces begin in the message
        self._holding: Holding | None = None

    @property
    def continues(self) -> bool:
        """Whether an earlier link received a part of the message."""
        return self._held is not None

    @property
    def whole(self) -> bool:
        """Whether everything came in one frame."""
        return len(self._pieces) == 1 and not self.resumed

    def continue_from(self, partial: Partial, state: DeliveryState | None) -> None:
        """Continue what an earlier link received, from the point in the client's `state`; otherwise from the start.

        Raises AmqpFault if octets would be missing.
        """
        self._held, self._holding = partial.payload, partial.holding
        if isinstance(state, Received):
            try:
                self._start = self.size = offset_of(partial.payload, state)
            except CodecError as error:
                self.close()
                raise link_fault(INVALID_FIELD, f"a delivery cannot be resumed: {error}") from None

    def add(self, piece: bytes) -> None:
        """Add the payload of a frame."""
        self._pieces.append(piece)

    def hold(self) -> None:
        """Count the octets for the user and the virtual host. Raises LIMIT_EXCEEDED."""
        connection = self._link.session.connection
        if self._holding is None:
            self._holding = connection.broker.holdings.begin(connection.user, connection.vhost.name)
        connection.broker.engine.holders[self] = None
        self._holding.grow(self.held_bytes(0), "a message that is incomplete")

    # -- memory, which can be taken back

    @property
    def owner(self) -> tuple[str, object]:
        """The user and the client's container."""
        connection = self._link.session.connection
        return connection.user, connection.container

    def held_bytes(self, before: int) -> int:
        """The octets that have arrived, also on an earlier link."""
        del before
        return self.size + len(self._held or b"")

    def give_up(self, text: str) -> None:
        """Forget the octets and detach the link, because memory is short and the message has been incomplete for long.
        Other deliveries of the link stay unsettled.
        """
        self.close()
        self._link.suspend(link_fault(LIMIT_EXCEEDED, text), closed=False)

    # -- the end

    def refuse(self, error: BrokerError) -> None:
        """Keep nothing of the message, whose other frames are still to come."""
        self.refusal = error
        self.close()

    def message(self) -> bytes | None:
        """Return the message, all of which has arrived; None if it is not the one that had arrived in part, so that
        its beginning is missing.
        """
        arrived = self._arrived()
        if self._held is None or not self._start:
            return arrived
        again = self._held[self._start :]
        return self._held[: self._start] + arrived if arrived.startswith(again) else None

    def interrupt(self, loan: Loan) -> None:
        """Leave what has arrived with the terminus, because the link is gone."""
        payload = b""
        if not (self.settled or self.skipped or self.refusal is not None):
            arrived, held = self._arrived(), self._held or b""
            again = held[self._start :]
            if again.startswith(arrived):
                payload = held
            elif arrived.startswith(again) or not self._start:
                payload = held[: self._start] + arrived
        if not payload:
            self.close()
            return
        holding, self._holding = self._holding, None
        self._link.session.connection.broker.engine.holders.pop(self, None)
        loan.interrupted(Partial(self.tag, payload, holding))

    def _arrived(self) -> bytes:
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)

    def close(self) -> None:
        """Keep nothing, and count nothing any more."""
        self._pieces.clear()
        self._held = None
        self._start = 0
        if self._holding is not None:
            self._holding.close()
            self._holding = None
            self._link.session.connection.broker.engine.holders.pop(self, None)


def point_of(partial: Partial) -> Received:
    """Return the point from which a client goes on with a delivery that has arrived in part."""
    return point_at(partial.payload, max(len(partial.payload) - OVERLAP, 0))
