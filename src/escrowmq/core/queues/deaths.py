"""A message's deaths: the envelope of a dead letter, the detection of cycles, and the size of a record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from escrowmq.core.messages.envelope import Death, Envelope
from escrowmq.core.queues.outcome import DEATH_REASONS, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.queues.queue import Queue

BYTES: Final = 16 * 1024 * 1024
"""Bytes of bodies and headers that are dead-lettered in one record. One more message may exceed it."""
COUNT: Final = 10_000
"""Maximum number of messages in such a record."""
HISTORY: Final = 1000
"""Maximum number of deaths, each of another queue or for another reason, after which a message is dead-lettered."""


def dead_envelope(
    envelope: Envelope, queue: Queue, outcome: Outcome, now: int, *, exchange: str | None = None
) -> Envelope:
    """Return the envelope for the dead-letter exchange, with one more death in its history and no time to live.
    `exchange` is the name of another exchange than that of the queue.
    """
    reason = DEATH_REASONS[outcome]
    keys = (envelope.routing_key, *envelope.extra_keys)
    seen = next((death for death in envelope.deaths if death.queue == queue.name and death.reason == reason), None)
    count = seen.times + 1 if seen else 1
    death = Death(
        queue.name,
        reason,
        count,
        seen.time_ms if seen else now,
        seen.exchange if seen else envelope.exchange,
        seen.routing_keys if seen else keys,
        envelope.ttl,
    )
    others = tuple(other for other in envelope.deaths if other is not seen)
    routing_key = queue.options.dead_letter_routing_key
    return Envelope(
        exchange or queue.options.dead_letter_exchange or "",
        envelope.routing_key if routing_key is None else routing_key,
        envelope.header,
        protocol=envelope.protocol,
        durable=envelope.durable,
        priority=envelope.priority,
        extra_keys=envelope.extra_keys if routing_key is None else (),
        deaths=(death, *others),
    )


def circular(deaths: tuple[Death, ...], queue: str) -> bool:
    """Return whether `queue` closes a dead-letter cycle in which no consumer rejected the message, or the history has
    grown as if it were in one. Such a message is dropped.
    """
    if len(deaths) > HISTORY:
        return True
    names = [death.queue for death in deaths]
    if queue not in names:
        return False
    return all(death.reason != "rejected" for death in deaths[: names.index(queue) + 1])


def in_parts(entries: list[Entry]) -> Iterator[list[Entry]]:
    """Divide `entries`, in order, into lists that fit into one record each."""
    begin = size = 0
    run = None
    for i, entry in enumerate(entries, 1):
        size += len(entry.content)
        if entry.run is not run:
            run = entry.run
            size += len(run.envelope.header)
        if size >= BYTES or i - begin == COUNT or i == len(entries):
            yield entries[begin:i]
            begin, size = i, 0
