"""Queues that refuse messages at their limit (`x-overflow`: `reject-publish` and `reject-publish-dlx`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from escrowmq.core.branches.decision import Decision
from escrowmq.core.messages.entry import Entry, Run
from escrowmq.core.queues.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from escrowmq.core.engine import Engine
    from escrowmq.core.messages.envelope import Envelope
    from escrowmq.core.queues.queue import Queue


def publish_one_by_one(
    engine: Engine,
    envelope: Envelope,
    contents: Sequence[bytes],
    queues: Sequence[Queue],
    publish: Callable[[int, Sequence[Queue]], int],
) -> tuple[int, tuple[int, ...]]:
    """Publish messages one by one, since a queue may be full after any of them. If one queue refuses a message, the
    other queues still receive it.

    `publish` publishes the message with this number to these queues, and returns an LSN. Return the highest LSN, and
    the numbers of the messages that a queue refused.
    """
    lsn = 0
    refused = []
    for i, content in enumerate(contents):
        takers = [queue for queue in queues if not queue.refuses or queue.accepts(1, len(content))]
        if len(takers) < len(queues):
            refused.append(i)
            taking = set(takers)
            for queue in queues:
                if queue not in taking and queue.options.overflow == "reject-publish-dlx":
                    lsn = max(lsn, dead_letter(engine, queue, envelope, content))
        if takers:
            lsn = max(lsn, publish(i, takers))
    return lsn, tuple(refused)


def dead_letter(engine: Engine, queue: Queue, envelope: Envelope, content: bytes) -> int:
    """Dead-letter a message that `queue` refuses. Return the LSN up to which the log must be synced, or 0."""
    decision = Decision(engine)
    engine.dead_letters.place(decision, queue, [Entry(0, content, Run(envelope, 0, engine.now))], Outcome.DROPPED)
    return decision.apply()
