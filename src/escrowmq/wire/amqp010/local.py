"""Queues that do not take messages of their own connection: the argument `no-local` of a queue.

A queue belongs to the connection that has it for itself: it is exclusive to one of its sessions, or one of them has the
lock of `exclusive.py`, or an exclusive subscription. A message of this connection does not get into the queue.
Otherwise it is as if it did: a publisher that wants answers has it accepted. A queue that no connection has for itself
takes everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from escrowmq.wire.amqp010.exclusive import QueueLocks, SessionOwner

if TYPE_CHECKING:
    from escrowmq.core.queues.queue import Queue
    from escrowmq.wire.amqp010.ports import SessionPort

NO_LOCAL: Final = "no-local"
"""The argument of a queue, as Qpid's clients send it. Its value is true or a text."""
_OFF: Final = (False, None, 0, "", "false")


def for_others(session: SessionPort, queues: tuple[Queue, ...]) -> tuple[Queue, ...]:
    """Return the queues that take messages of this session."""
    locks = session.host.common(QueueLocks)
    return tuple([queue for queue in queues if not _is_own(session, queue, locks)])


def _is_own(session: SessionPort, queue: Queue, locks: QueueLocks) -> bool:
    if queue.arguments.get(NO_LOCAL) in _OFF:
        return False
    connection = session.owner.connection
    for owner in (queue.owner, locks.owner_of(queue)):
        if isinstance(owner, SessionOwner) and owner.connection is connection:
            return True
    sole = queue.consumers.exclusive
    receiver = None if sole is None else sole.receiver
    return receiver is not None and getattr(receiver, "owner", ("", None))[1] is connection
