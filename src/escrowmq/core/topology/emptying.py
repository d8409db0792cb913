"""The messages and consumers of deleted queues, which have no name any more, and to which nothing is routed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

from escrowmq.core.budget import CANCELLED, DELETED
from escrowmq.core.messages.entry import Run
from escrowmq.core.queues import host

if TYPE_CHECKING:
    from escrowmq.core.budget import Budget
    from escrowmq.core.queues.queue import Queue


class EmptyingHost(host.Host, Protocol):
    """The part of the engine that is needed here."""

    requests: Budget


def withdraw(engine: EmptyingHost, queue: Queue) -> None:
    """Withdraw the messages of a deleted queue."""
    for _, run, contents in queue.unsynced:
        if not isinstance(run, Run):
            run.release(engine.log)
        elif run.lsn:
            engine.log.release(run.lsn, len(contents))
    queue.unsynced.clear()
    for reservation in queue.reservations.values():
        engine.removals.let_go(reference for reference, _ in reservation.clear())
    for part in queue.locked:
        engine.removals.let_go(part)
        part.clear()
    queue.locked.clear()
    engine.removals.release_in_pieces(queue.order.withdraw())


def cancelling(engine: EmptyingHost, queue: Queue) -> Iterator[None]:
    """Cancel the consumers of a deleted queue, in pieces."""
    requests = engine.requests
    for consumer in reversed([*queue.consumers, *(queue.browsers or ())]):  # so that no other one becomes active
        if not consumer.line.remove(consumer):
            continue
        receiver = consumer.detach()
        if receiver is not None:
            receiver.cancelled(consumer)
        requests.left -= CANCELLED
        if requests.left <= 0:
            yield


def emptying(engine: EmptyingHost, queues: Iterable[Queue]) -> Iterator[None]:
    """Withdraw the messages of deleted queues, and cancel their consumers, in pieces."""
    requests = engine.requests
    for queue in queues:
        withdraw(engine, queue)
        yield from cancelling(engine, queue)
        requests.left -= DELETED
        if requests.left <= 0:
            yield
