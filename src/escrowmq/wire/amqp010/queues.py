"""The class `queue`: declare, delete, purge and query. None of them is transactional (TX-9)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from escrowmq.core.access.table import Operation
from escrowmq.core.budget import DEAD_LETTERED
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.leftover import WAIT
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.queues.returning import TOGETHER
from escrowmq.core.topology.arguments.queue import DEAD_LETTER_EXCHANGE
from escrowmq.core.topology.declaration import Declaration
from escrowmq.core.topology.vhost import RESERVED_PREFIX
from escrowmq.wire.amqp010.arguments import queue_arguments
from escrowmq.wire.amqp010.codec.spec import QueueDeclare, QueueDelete, QueuePurge, QueueQuery, QueueQueryResult
from escrowmq.wire.amqp010.exclusive import QueueLocks
from escrowmq.wire.amqp010.ports import Reply

if TYPE_CHECKING:
    from escrowmq.core.queues.queue import Queue
    from escrowmq.wire.amqp010.codec.structs import Command
    from escrowmq.wire.amqp010.ports import Content, Handler, SessionPort, Work
    from escrowmq.wire.outbox import Piece


class Locked:
    """The queues to which the session has the lock (`ports.SessionPart`)."""

    def __init__(self, session: SessionPort) -> None:
        self._session = session
        self._queues: dict[Queue, None] = {}

    def lock(self, queue: Queue) -> None:
        """Lock a queue until the session ends. Raises as `QueueLocks.lock`."""
        if self._session.host.common(QueueLocks).lock(queue, self._session.owner):
            self._queues[queue] = None

    def unlock(self, queue: Queue) -> None:
        """Give up the lock, if the session has it."""
        if queue in self._queues:
            del self._queues[queue]
            self._session.host.common(QueueLocks).release(queue)

    # -- ports.SessionPart

    @property
    def lasting(self) -> bool:
        """The locks are kept."""
        return True

    def attached(self) -> None:
        """Do nothing: the locks belong to the session."""

    def sent_again(self, first: int, most: int) -> list[tuple[int, list[Piece]]]:
        """Return nothing: no command is sent to the client."""
        return []

    def caught_up(self) -> None:
        """Do nothing: nothing is delivered here."""

    @property
    def counted_bytes(self) -> int:
        """Nothing worth counting."""
        return 0

    def flush(self) -> None:
        """Do nothing: no work is put off."""

    def completed(self, first: int, last: int) -> None:
        """Do nothing: no command is sent to the client."""

    def note_ages(self, now_ms: int) -> None:
        """Do nothing: no deliveries are held here."""

    def dropping_forbidden(self) -> Iterator[None]:
        """Do nothing: rights are checked at each use of a queue."""
        return iter(())

    def leave(self) -> None:
        """Give up the locks."""
        for queue in list(self._queues):
            self.unlock(queue)

    def leaving(self) -> Iterator[None]:
        """Do nothing: the locks are given up."""
        return iter(())

    def returning(self) -> Iterator[None]:
        """Do nothing: the locks are given up."""
        return iter(())

    def row(self) -> dict[str, Any]:
        """Return nothing: lists of channels do not show locks."""
        return {}


def named(name: str | None, what: str) -> str:
    """Return the name of an object. Raises INVALID_ARGUMENT if it is absent or empty."""
    if not name:
        raise BrokerError(Condition.INVALID_ARGUMENT, f"the name of the {what} is missing")
    return name


def queue_of(session: SessionPort, name: str | None, operation: Operation, **others: str) -> Queue:
    """Return the queue that a command names, for `operation`. `others` are the other objects that it concerns.

    The permission is checked first, so that a user without it cannot find out which queues exist. Raises
    INVALID_ARGUMENT, ACCESS_REFUSED, NOT_FOUND, and RESOURCE_LOCKED for a queue that is exclusive to another session
    (EXC-2).
    """
    session.door.check(operation, queue=named(name, "queue"), **others)
    queue = session.vhost.queue(named(name, "queue"))
    check_free(session, queue)
    return queue


def check_free(session: SessionPort, queue: Queue) -> None:
    """Raises RESOURCE_LOCKED for a queue that is exclusive to another session (EXC-2)."""
    queue.check_access(session.owner)
    session.host.common(QueueLocks).check(queue, session.owner)


def queue_declare(session: SessionPort, command: QueueDeclare, _: Content | None) -> Reply | None:
    """Declare a queue. One that exists is taken as it is (rules pre-existence of `durable` and `auto-delete`)."""
    name = named(command.queue, "queue")
    vhost = session.vhost
    if command.passive:
        session.door.check(Operation.LOOK_UP_QUEUE, queue=name)
        _check_passive(session, vhost.queue(name), exclusive=command.exclusive)
        return None
    session.door.check(Operation.DECLARE_QUEUE, queue=name)
    arguments = _arguments(session, command, name)
    queue = vhost.queues.get(name)
    if queue is None and name.startswith(RESERVED_PREFIX):
        raise BrokerError(Condition.NOT_ALLOWED, f"queue name '{name}' has the reserved prefix '{RESERVED_PREFIX}'")
    if queue is None:
        ends = command.exclusive and command.auto_delete
        declaration = Declaration(command.durable and not ends, ends, command.auto_delete and not ends, arguments)
        queue = session.broker.directory.declare_queue(vhost, name, declaration, session.owner)
    else:
        check_free(session, queue)
        queue.lifetime.touch()
    if command.exclusive and not queue.exclusive:
        session.part(Locked).lock(queue)
    return Reply(after=session.broker.log.end_lsn if queue.durable else 0)  # another client may just have declared it


def _check_passive(session: SessionPort, queue: Queue, *, exclusive: bool) -> None:
    """Raises RESOURCE_LOCKED if the session declares a queue as its own, and it is not.

    Without `exclusive` the client only asks whether the queue exists, as by queue.query. A server asks so for the queue
    to which it is to reply.
    """
    if not exclusive:
        return
    check_free(session, queue)
    if not queue.exclusive and session.host.common(QueueLocks).owner_of(queue) is None:
        text = f"queue '{queue.name}' in vhost '{queue.vhost}' is not exclusive to this session"
        raise BrokerError(Condition.RESOURCE_LOCKED, text)


def _arguments(session: SessionPort, command: QueueDeclare, name: str) -> dict[str, object]:
    """Return the arguments of a queue. Its alternate exchange receives its dead letters.

    Raises NOT_FOUND if there is no such exchange, and ACCESS_REFUSED.
    """
    arguments = queue_arguments(command.arguments)
    if command.alternate_exchange:
        arguments.setdefault(DEAD_LETTER_EXCHANGE, command.alternate_exchange)
    dead_letter = arguments.get(DEAD_LETTER_EXCHANGE)
    if isinstance(dead_letter, str):
        key = arguments.get("x-dead-letter-routing-key")
        session.door.check(
            Operation.SET_DEAD_LETTER,
            queue=name,
            dead_letter=dead_letter,
            dead_letter_key=key if isinstance(key, str) else None,
        )
        if command.alternate_exchange:
            session.vhost.exchange(command.alternate_exchange)
    return arguments


def queue_delete(session: SessionPort, command: QueueDelete, _: Content | None) -> Work:
    """Delete a queue. Its messages go to its alternate exchange before, if it has one, as far as no client has acquired
    them. The answer follows when its bindings and consumers are gone.
    """
    queue = queue_of(session, command.queue, Operation.DELETE_QUEUE)
    queue.refresh()
    if DEAD_LETTER_EXCHANGE in queue.arguments and not (command.if_empty or (command.if_unused and queue.consumers)):
        yield from _orphaned(session, queue)
    session.broker.directory.delete_queue(queue, if_unused=command.if_unused, if_empty=command.if_empty)
    session.part(Locked).unlock(queue)
    while queue in session.vhost.unbinding.gone or queue.consumers:
        yield WAIT
    return Reply(after=session.broker.log.end_lsn if queue.durable else 0)


def _orphaned(session: SessionPort, queue: Queue) -> Iterator[bool | None]:
    """Dead-letter the messages that are in a queue now, in pieces. Its alternate exchange may lead to itself."""
    engine, left = session.broker.engine, queue.ready
    while left > 0 and not queue.deleted:
        most = min(left, max(engine.requests.left // DEAD_LETTERED, 1), TOGETHER)
        entries = engine.fetch(queue, most, auto_settle=False, label=session.label)
        if not entries:
            return
        left -= len(entries)
        engine.settle(queue.getter, entries, Disposition.REJECTED)
        engine.requests.left -= DEAD_LETTERED * len(entries)
        if engine.requests.left <= 0:
            yield None


def queue_purge(session: SessionPort, command: QueuePurge, _: Content | None) -> Reply:
    """Remove the messages of a queue, but for those that clients have acquired (rule pending-messages)."""
    queue = queue_of(session, command.queue, Operation.PURGE_QUEUE)
    if queue.is_stream:
        raise BrokerError(Condition.NOT_IMPLEMENTED, f"queue '{queue.name}' is a stream, which cannot be purged")
    session.broker.directory.purge(queue)
    return Reply(after=session.broker.log.end_lsn if queue.durable else 0)


def queue_query(session: SessionPort, command: QueueQuery, _: Content | None) -> Reply:
    """Describe a queue. The result for a queue that does not exist is empty."""
    name = named(command.queue, "queue")
    session.door.check(Operation.LOOK_UP_QUEUE, queue=name)
    queue = session.vhost.queues.get(name)
    if queue is None:
        return Reply(QueueQueryResult())
    queue.refresh()
    alternate = queue.arguments.get(DEAD_LETTER_EXCHANGE)
    result = QueueQueryResult(
        queue=name,
        alternate_exchange=alternate if isinstance(alternate, str) else None,
        durable=queue.durable,
        exclusive=queue.exclusive,
        auto_delete=queue.auto_delete,
        arguments=dict(queue.arguments),
        message_count=queue.ready,
        subscriber_count=len(queue.consumers),
    )
    return Reply(result)


HANDLERS: Final[Mapping[type[Command], Handler]] = {
    QueueDeclare: queue_declare,
    QueueDelete: queue_delete,
    QueuePurge: queue_purge,
    QueueQuery: queue_query,
}
