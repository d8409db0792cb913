"""A link of a session: its name, its handle and its end. `incoming` and `outgoing` have the two directions.

| state     | attach                 | detach of the client          | fault or refusal              |
|-----------|------------------------|-------------------------------|-------------------------------|
| ATTACHED  | connection closed      | answered, the link is gone    | detach sent, DETACHING        |
| DETACHING | connection closed      | the link is gone              | ignored                       |

While a link is DETACHING, everything but a detach is ignored, because the client may have sent it before it learnt of
the detach.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol

from escrowmq.wire.amqp10.codec.performatives import Detach
from escrowmq.wire.amqp10.errors import AmqpFault

if TYPE_CHECKING:
    from escrowmq.wire.amqp10.codec.performatives import Attach, Flow
    from escrowmq.wire.amqp10.session import Session


class LinkState(Enum):
    """The state of a link. A link that is gone has no object."""

    ATTACHED = auto()
    DETACHING = auto()
    """The broker has sent a detach, and waits for that of the client."""


class LinkEnd(Protocol):
    """One direction of a link."""

    def flow(self, flow: Flow) -> None:
        """Handle the client's flow."""
        ...

    def release(self, *, closed: bool) -> int:
        """The link is detached; with `closed` its terminus is gone, too. Return the LSN that the answer waits for."""
        ...

    def block(self, *, on: bool) -> None:
        """Stop accepting messages, or accept them again."""
        ...

    def forbidden(self) -> bool:
        """Whether the user has lost the right to use the link."""
        ...

    def describe(self) -> dict[str, object]:
        """Return the link's entry in lists."""
        ...


class Link:
    """An attached link. `end` is None if the attach was refused."""

    __slots__ = ("end", "handle", "name", "role", "session", "state")

    def __init__(self, session: Session, attach: Attach) -> None:
        self.session = session
        self.handle = attach.handle
        self.name = attach.name
        self.role = not attach.role  # of the broker: True if it receives
        self.end: LinkEnd | None = None
        self.state = LinkState.ATTACHED

    @property
    def detaching(self) -> bool:
        """Whether everything but a detach is ignored."""
        return self.state is LinkState.DETACHING

    def fail(self, fault: AmqpFault) -> None:
        """Detach the link for a fault, or because its node is gone."""
        self.suspend(fault, closed=True)

    def suspend(self, fault: AmqpFault, *, closed: bool) -> None:
        """Like `fail`. Unless `closed`, the terminus stays, and the client may attach again."""
        if self.state is LinkState.DETACHING or self.session.ending:
            return
        self.session.connection.failed(fault)
        self.state = LinkState.DETACHING
        after = self.release(closed=closed)
        self.session.send(Detach(handle=self.handle, closed=closed, error=fault.error()), after)

    def release(self, *, closed: bool) -> int:
        """Give back everything that the link holds. Return the LSN that the answer waits for; 0 for none."""
        end, self.end = self.end, None
        return end.release(closed=closed) if end is not None else 0

    def describe(self) -> dict[str, object]:
        """Return the link's entry in lists."""
        entry: dict[str, object] = {
            "name": self.name,
            "role": "receiver" if self.role else "sender",
            "state": self.state.name.lower(),
        }
        if self.end is not None:
            entry.update(self.end.describe())
        return entry
