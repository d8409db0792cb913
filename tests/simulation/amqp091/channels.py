"""The oracle's state of each connection and channel."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from escrowmq.wire.amqp091.method import Method
from tests.harness.frames import FrameReader, Message
from tests.simulation.ledger import Copy, Operation, Queue, Sent


def no_check(message: Message) -> None:
    """Accept any answer of the right kind."""


@dataclass(eq=False, slots=True)
class Subscription:
    queue: Queue
    prefetch: int
    no_ack: bool
    last_key: int = 0
    cancelled: bool = False


@dataclass(eq=False, slots=True)
class Delivery:
    copy: Copy
    consumer: str


@dataclass(eq=False, slots=True)
class Transaction:
    """The operations of a channel since its last commit or rollback."""

    publishes: list[tuple[Sent, list[Queue], bool]] = field(default_factory=list)
    settlements: list[tuple[int, Delivery, str]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.publishes or self.settlements)


@dataclass(eq=False, slots=True)
class Answer:
    """An answer that a client expects. `check` is called with it; a basic.get also takes a message from `queue`."""

    kinds: tuple[type[Method], ...]
    check: Callable[[Message], None]
    queue: Queue | None = None


@dataclass(eq=False, slots=True)
class Channel:
    """The expected state of a channel. `closing` is the reply code with which it is being closed, 0 by the client."""

    number: int
    mode: str = ""
    closing: int | None = None
    recovering: int = 0
    next_tag: int = 1
    prefetch: int = 0
    consumers: dict[str, Subscription] = field(default_factory=dict)
    unsettled: dict[int, Delivery] = field(default_factory=dict)
    transaction: Transaction = field(default_factory=Transaction)
    expected: deque[Answer] = field(default_factory=deque)
    published: int = 0
    confirms: dict[int, tuple[Operation, int]] = field(default_factory=dict)
    returns: deque[tuple[int, int]] = field(default_factory=deque)
    committing: Operation | None = None

    @property
    def pending(self) -> bool:
        """Whether answers are due, behind which deliveries may be waiting that the oracle has not seen."""
        return bool(self.expected or self.confirms)

    @property
    def undecided(self) -> bool:
        """Whether a commit is under way that the broker may refuse."""
        return self.committing is not None and any(copy.queue.refuses for copy in self.committing.adds)

    @property
    def sources(self) -> set[Queue]:
        """The queues whose messages may be on their way to this channel while answers are due."""
        found = {subscription.queue for subscription in self.consumers.values()}
        return found | {answer.queue for answer in self.expected if answer.queue is not None}


class Connection:
    """The oracle's state of one connection, with a frame reader for each direction."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.inward = FrameReader(from_client=True)
        self.outward = FrameReader()
        self.channels: dict[int, Channel] = {}
        self.lost = False

    @property
    def undecided(self) -> bool:
        """See `Channel.undecided`."""
        return any(channel.undecided for channel in self.channels.values())
