"""The interface between a simulated world and a protocol.

A world chooses steps, moves bytes, and owns the server, the disk and the clock. It understands no frame. A `Dialect`
provides the endpoint, clients that execute steps in their protocol, and an observer that reads both directions and
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
    """One client process. It remembers the messages that it sent and received, and skips requests that make no
    sense.
    """

    port: AnyPort | None
    up: bytearray
    """Bytes that the client has written and that are still in the network."""
    down: bytearray
    """Bytes that the server has sent and that are still in the network."""

    @property
    def left(self) -> bool:
        """Whether the client has closed its connection cleanly, and the server has answered."""
        ...

    def connect(self, port: AnyPort) -> None:
        """Log in and open a channel, session or link for each way of publishing."""
        ...

    def set_up(self) -> None:
        """Declare the topology."""
        ...

    def act(self, step: Step) -> None:
        """Publish, settle, consume, commit, … according to `step.kind`, or do nothing if it makes no sense now."""
        ...

    def read(self, data: bytes) -> None:
        """Process bytes from the server."""
        ...

    def lost(self) -> None:
        """Note that the connection is lost."""
        ...


class Observer(Protocol):
    """Reads every byte in both directions. Raises Violation if the server breaks a promise."""

    tell: Callable[[str], None] | None

    @property
    def settled(self) -> bool:
        """Whether all answers to clients have been sent."""
        ...

    def connect(self, name: str) -> Any:
        """Note that a connection is open. Returns its state in the observer (see `Conversation`)."""
        ...

    def lose(self, connection: Any) -> None: ...

    def inward(self, connection: Any, data: bytes) -> None:
        """Process bytes that the server has received."""
        ...

    def outward(self, connection: Any, data: bytes) -> None:
        """Process bytes that the server has sent."""
        ...

    def before_output(self) -> None: ...

    def after_output(self, *, unfinished: bool = False) -> None: ...

    def die(self) -> None:
        """Note that the server process has ended."""
        ...


class Conversation(Protocol):
    """The state of one connection in the observer."""

    @property
    def undecided(self) -> bool:
        """Whether only the next answer will show if a commit took effect."""
        ...


@dataclass(frozen=True)
class Dialect:
    """A protocol as worlds use it."""

    open: Opener
    make_client: Callable[[int, Sequence[str]], Client]
    """A callable that takes the client's number and the queues that it prefers."""
    make_observer: Callable[[Ledger], Observer]
