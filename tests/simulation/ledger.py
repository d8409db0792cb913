"""The part of the oracle that knows the expected content of queues, and the operations that a restart may undo.

It is independent of the broker's code. It knows only the clients' requests, in the order in which the server received
them, and the server's answers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple


class Violation(AssertionError):  # noqa: N818 - a finding, not an error of the program
    """The broker broke a promise."""


class State(Enum):
    """The state of a copy of a message."""

    READY = auto()
    OUT = auto()
    """Delivered and not settled."""
    GONE = auto()


@dataclass(eq=False, slots=True)
class Operation:
    """The effects of one record of the log. Either all of them survive a crash, or none does (TX-5).

    `turn` is None if the oracle cannot know when the broker executed the operation. `promised` becomes true when a
    client receives the answer, or sees an effect of a transaction.
    """

    what: str
    turn: int | None
    transaction: bool = False
    promised: bool = False
    adds: list[Copy] = field(default_factory=list)
    removals: list[Copy] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Sent:
    """A message as its publisher sent it."""

    serial: int
    body: bytes
    header: bytes
    exchange: str
    routing_key: str
    persistent: bool
    priority: int


class Identity(NamedTuple):
    """Identifies a copy of a message on a queue. `via` is the queue from which it was dead-lettered."""

    serial: int
    via: str = ""


@dataclass(eq=False, slots=True)
class Copy:
    """One message on one queue.

    `key` is its place in the order of publication, None while that is unknown. A `doubtful` copy may have left its
    queue for a reason that the oracle has not seen.
    """

    sent: Sent
    identity: Identity
    queue: Queue
    durable: bool
    added: Operation
    key: int | None
    since: int
    state: State = State.READY
    doubtful: bool = False
    delivered: bool = False
    removed: Operation | None = None

    @property
    def maybe(self) -> bool:
        """Whether the copy may be absent."""
        return self.state is State.READY and (self.doubtful or self.queue.lossy)

    def __str__(self) -> str:
        via = f" via {self.identity.via}" if self.identity.via else ""
        return f"message {self.identity.serial}{via} on {self.queue.name}"


@dataclass(eq=False, slots=True)
class Queue:
    """A queue from its declaration to its deletion.

    A `lossy` queue may lose waiting messages, to the dead-letter queue if it has one.
    """

    name: str
    durable: bool
    born: Operation
    lossy: bool = False
    dead_letters: bool = False
    refuses: bool = False
    priorities: int = 0
    limit: int | None = None
    quorum: bool = False
    overfull: bool = False
    bound: bool = False
    owner: object | None = None
    deleted: Operation | None = None
    next_key: int = 1
    copies: dict[Identity, Copy] = field(default_factory=dict)
    gone: dict[Identity, Copy] = field(default_factory=dict)
    sealed_by: dict[Operation, None] = field(default_factory=dict)
    """Commits that may not be visible yet."""

    def ready(self) -> list[Copy]:
        return [copy for copy in self.copies.values() if copy.state is State.READY]

    def place(self, copy: Copy) -> tuple[int, int]:
        """Return the sort key of deliveries: priority (ORD-6), then publication (ORD-1)."""
        assert copy.key is not None
        return (-min(copy.sent.priority, self.priorities), copy.key)


@dataclass(frozen=True, slots=True)
class Found:
    """A message found in the broker. `held` says whether it is delivered and unsettled."""

    position: int
    serial: int
    via: str
    body: bytes
    header: bytes
    held: bool


DEAD = "dead"


class Ledger:
    """All queues and copies of messages, and counts of events."""

    def __init__(self) -> None:
        self.turn = 0
        self.sent: dict[int, Sent] = {}
        self.queues: dict[str, Queue] = {}
        self.old: list[Queue] = []
        """Deleted durable queues whose deletion is not promised yet."""
        self.forgotten: list[Queue] = []
        """Deleted durable queues that only damage to the medium can bring back."""
        self.events: dict[str, int] = {}

    def count(self, event: str, number: int = 1) -> None:
        self.events[event] = self.events.get(event, 0) + number

    def operation(self, what: str, *, transaction: bool = False) -> Operation:
        return Operation(what, self.turn, transaction)

    # -- queues

    def declare(self, name: str, queue: Queue) -> Queue:
        self.queues[name] = queue
        return queue

    def delete(self, queue: Queue, operation: Operation) -> None:
        queue.deleted = operation
        del self.queues[queue.name]
        if queue.durable:
            self.old.append(queue)

    def forget(self, queue: Queue) -> None:
        """Note that the deletion of a queue is promised."""
        if queue in self.old:
            self.old.remove(queue)
            self.forgotten.append(queue)

    # -- messages

    def add(self, queue: Queue, sent: Sent, operation: Operation, *, via: str = "", ordered: bool = True) -> Copy:
        """Enqueue a copy of a message."""
        identity = Identity(sent.serial, via)
        if identity in queue.copies or identity in queue.gone:
            raise AssertionError(f"the workload put message {identity} on {queue.name} twice")
        key = None
        if ordered:
            key = queue.next_key
            queue.next_key += 1
        source = self.queues.get(via)
        lasting = sent.persistent or queue.quorum or (source is not None and source.quorum)
        copy = Copy(sent, identity, queue, queue.durable and lasting, operation, key, self.turn, doubtful=queue.refuses)
        queue.copies[identity] = copy
        queue.overfull = False
        operation.adds.append(copy)
        return copy

    def remove(self, copy: Copy, operation: Operation) -> None:
        """Remove a copy from its queue."""
        copy.state = State.GONE
        copy.removed = operation
        operation.removals.append(copy)
        del copy.queue.copies[copy.identity]
        copy.queue.gone[copy.identity] = copy

    def restore(self, copy: Copy) -> None:
        """Revert the removal of a copy."""
        copy.state, copy.removed, copy.since = State.READY, None, self.turn
        del copy.queue.gone[copy.identity]
        copy.queue.copies[copy.identity] = copy

    def dead_letter(self, copy: Copy, operation: Operation, *, ordered: bool = True) -> None:
        """Reject a copy, and move it to the dead-letter queue if its queue has one."""
        self.remove(copy, operation)
        if copy.queue.dead_letters and not copy.queue.deleted:
            self.add(self.queues[DEAD], copy.sent, operation, via=copy.queue.name, ordered=ordered)

    def give_back(self, copy: Copy) -> None:
        """Requeue a delivered copy."""
        copy.state, copy.since = State.READY, self.turn

    def identify(self, queue: Queue, serial: int, via: str, body: bytes, header: bytes | None) -> Copy:
        """Identify a message seen on a queue. Properties are compared only if `header` is given.

        Raises:
            Violation: the message was never sent or published there, or has a different content.
        """
        sent = self.sent.get(serial)
        where = f"message {serial}{' via ' + via if via else ''} on {queue.name}"
        if sent is None:
            raise Violation(f"{where} was never sent")
        if sent.body != body:
            raise Violation(f"{where} has a different body than was sent")
        if header is not None and sent.header != header:
            raise Violation(f"{where} has different properties than were sent")
        identity = Identity(serial, via)
        copy = queue.copies.get(identity) or queue.gone.get(identity)
        if copy is not None:
            return copy
        source = self._source(sent, via) if queue.name == DEAD else None
        if source is None:
            raise Violation(f"{where} was never published there")
        operation = Operation(f"dead-lettering of {source}", None)
        self.remove(source, operation)
        self.count("dead-lettered by the broker")
        return self.add(queue, sent, operation, via=via, ordered=False)

    def _source(self, sent: Sent, via: str) -> Copy | None:
        """Return the copy that the broker may have dead-lettered of its own accord; None if there is none."""
        queue = self.queues.get(via)
        copy = queue.copies.get(Identity(sent.serial)) if queue is not None else None
        return copy if copy is not None and copy.maybe and copy.queue.dead_letters else None

    # -- comparing everything

    def compare(self, found: dict[str, list[Found]]) -> None:
        """Compare the broker's content at rest with the expected one, including deliveries and order."""
        for queue in self.queues.values():
            if queue.name not in found:
                raise Violation(f"queue {queue.name} is gone")
        for name, items in found.items():
            if name not in self.queues:
                raise Violation(f"queue {name} exists, but was never declared")
            queue = self.queues[name]
            for item in items:
                copy = self.identify(queue, item.serial, item.via, item.body, item.header)
                if copy.state is State.GONE:
                    raise Violation(f"{copy} still exists after {copy.removed and copy.removed.what}")
                if item.held != (copy.state is State.OUT):
                    raise Violation(f"{copy} is {'' if item.held else 'not '}delivered; expected: {copy.state.name}")
        for name, items in found.items():
            queue = self.queues[name]
            there = {Identity(item.serial, item.via) for item in items}
            if len(there) != len(items):
                raise Violation(f"a message exists twice on {name}")
            waiting = sum(not item.held for item in items)
            if queue.limit is not None and waiting > queue.limit and not queue.overfull:
                raise Violation(f"{waiting} messages wait on {name}; the limit is {queue.limit}")
            for copy in [copy for identity, copy in queue.copies.items() if identity not in there]:
                self._miss(copy)
            self._settle_order(queue, items)
        self.promise_all()

    def _miss(self, copy: Copy) -> None:
        """Judge the absence of a copy."""
        if not copy.maybe or (copy.queue.dead_letters and not copy.doubtful):
            raise Violation(f"{copy} is lost (it was {copy.state.name})")
        self.remove(copy, Operation("allowed loss", None))

    @staticmethod
    def _settle_order(queue: Queue, items: list[Found]) -> None:
        """Check that positions follow the order of publication (ORD-1, ORD-2, ORD-5), and adopt them as keys."""
        copies = [queue.copies[Identity(item.serial, item.via)] for item in items]
        keys = [copy.key for copy in copies if copy.key is not None]
        if keys != sorted(keys):
            raise Violation(f"{queue.name} is out of order: {[str(copy) for copy in copies]}, published as {keys}")
        for key, copy in enumerate(copies, queue.next_key):  # higher than any key that a consumer has seen
            copy.key = key
            copy.doubtful = False
        queue.next_key += len(copies)

    def promise_all(self) -> None:
        """Note that everything is on disk."""
        for queue in self.queues.values():
            queue.born.promised = True
            queue.sealed_by.clear()
            for copy in (*queue.copies.values(), *queue.gone.values()):
                copy.added.promised = True
                if copy.removed is not None:
                    copy.removed.promised = True
        for queue in list(self.old):
            self.forget(queue)
