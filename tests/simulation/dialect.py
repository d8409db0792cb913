"""What a simulated world needs to know of a protocol.

A world chooses steps, moves bytes, and owns the server, the disk and the clock. It understands no frame. A `Dialect`
brings the endpoint, clients that carry out steps in their protocol, and an observer that reads both directions and
checks them against the ledger. `tests.simulation.amqp091` is one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from escrowmq.wire.sniff import Opener
from tests.harness.server import AnyPort
from tests.simulation.ledger import Ledger
from tests.simulation.steps import Step


class Client(Protocol):
    """One client process. It remembers what it has sent and received, and asks for nothing that makes no sense."""

    port: AnyPort | None
    up: bytearray
    """Bytes that the client has written and the network still has."""
    down: bytearray
    """Bytes that the server has sent and the network still has."""

    @property
    def left(self) -> bool:
        """The client has closed its connection in an orderly way, and the server has answered."""
        ...

    def connect(self, port: AnyPort) -> None:
        """Log in and open a channel, session or link for each way of publishing."""
        ...

    def set_up(self) -> None:
        """Declare the topology."""
        ...

    def act(self, step: Step) -> None:
        """Publish, settle, consume, commit, … as `step.kind` says; or do nothing, if it makes no sense now."""
        ...

    def read(self, data: bytes) -> None:
        """Process bytes from the server."""
        ...

    def lost(self) -> None:
        """The connection is gone."""
        ...


class Observer(Protocol):
    """Reads every byte in both directions. Raises Violation when the server breaks a promise."""

    tell: Callable[[str], None] | None

    @property
    def settled(self) -> bool:
        """No answer is owed to any client."""
        ...

    def connect(self, name: str) -> Any:
        """A connection is open. Returns what the observer remembers of it (see `Conversation`)."""
        ...

    def lose(self, connection: Any) -> None: ...

    def inward(self, connection: Any, data: bytes) -> None:
        """The server has received these bytes."""
        ...

    def outward(self, connection: Any, data: bytes) -> None:
        """The server has sent these bytes."""
        ...

    def before_output(self) -> None: ...

    def after_output(self) -> None: ...

    def die(self) -> None:
        """The server process has ended."""
        ...


class Conversation(Protocol):
    """What an observer remembers of one connection."""

    @property
    def undecided(self) -> bool:
        """Only the next answer will tell whether a commit took effect."""
        ...


@dataclass(frozen=True)
class Dialect:
    """One protocol, as worlds use it."""

    open: Opener
    make_client: Callable[[int, Sequence[str]], Client]
    """Takes the client's number and the queues that it prefers."""
    make_observer: Callable[[Ledger], Observer]
