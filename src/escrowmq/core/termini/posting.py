"""Messages that arrive at an incoming terminus whose receiver settles second (SET-8).

One record holds a run of messages and their tags. The messages are visible when it is synced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from escrowmq.core.branches.decision import Decision
from escrowmq.core.engine import Receipt
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.queues.refusal import publish_one_by_one
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.termini import encode_arrived
from escrowmq.core.termini.arrivals import fingerprint_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from escrowmq.core.engine import Engine
    from escrowmq.core.messages.envelope import Envelope
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.termini.terminus import Terminus


class ArrivalWork:
    """The part of a decision that keeps the tags of the messages that it places."""

    __slots__ = ("_fingerprints", "_tags", "_terminus")

    def __init__(self, terminus: Terminus, tags: Sequence[bytes], fingerprints: Sequence[int]) -> None:
        self._terminus = terminus
        self._tags = tags
        self._fingerprints = fingerprints

    def operations(self) -> list[tuple[Kind, Sequence[bytes]]]:
        """Return the operations to write."""
        number = self._terminus.number
        return [(Kind.ARRIVED, [encode_arrived(number, Disposition.ACCEPTED, self._tags, self._fingerprints)])]

    def apply(self, end: int, synced: int) -> None:
        """Keep the tags, after the record is written up to `end`."""
        self._terminus.arrivals.accept(self._tags, self._fingerprints, end, synced)


def post(
    engine: Engine,
    terminus: Terminus,
    envelope: Envelope,
    contents: list[bytes],
    queues: Sequence[Queue],
    tags: Sequence[bytes],
) -> Receipt:
    """Publish a run of messages with these tags. Messages that a queue refused leave no tag."""
    fingerprints = list(map(fingerprint_of, contents))
    lasting = envelope.durable or any(queue.persists_all for queue in queues)
    if not (terminus.keeps and lasting and any(queue.durable for queue in queues)):
        receipt = engine.publish(envelope, contents, queues)
        taken = [i for i in range(len(tags)) if i not in receipt.refused] if receipt.refused else range(len(tags))
        synced = engine.log.synced_lsn
        terminus.arrivals.accept([tags[i] for i in taken], [fingerprints[i] for i in taken], receipt.lsn, synced)
        return receipt

    def together(chosen: range, takers: Sequence[Queue]) -> int:
        decision = Decision(engine)
        part = slice(chosen.start, chosen.stop)
        decision.place(envelope, contents[part], takers)
        decision.arrive(ArrivalWork(terminus, tags[part], fingerprints[part]))
        return decision.apply(sealed=True)

    if not any(queue.refuses for queue in queues):
        return Receipt(together(range(len(tags)), queues))

    def alone(i: int, takers: Sequence[Queue]) -> int:
        if len(takers) == len(queues):
            return together(range(i, i + 1), takers)
        decision = Decision(engine)  # its sender is told that it was refused
        decision.place(envelope, [contents[i]], takers)
        return decision.apply(sealed=True)

    return Receipt(*publish_one_by_one(engine, envelope, contents, queues, alone))
