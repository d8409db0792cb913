"""Messages that arrive at an incoming terminus whose receiver settles second (SET-8).

One record holds a run of messages and their tags. The messages are visible when it is synced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from escrowmq.core.branches.decision import Decision
from escrowmq.core.engine import Receipt
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.queues.placing import WIDE
from escrowmq.core.queues.refusal import publish_one_by_one
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.termini import encode_arrived

if TYPE_CHECKING:
    from collections.abc import Sequence

    from escrowmq.core.engine import Engine
    from escrowmq.core.messages.envelope import Envelope
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.termini.terminus import Terminus


_HEAD_BYTES: Final = 32
_TAG_BYTES: Final = 9


class ArrivalWork:
    """The part that the tags of messages have in the record of a decision, if these are `lasting`."""

    __slots__ = ("_fingerprints", "_lasting", "_tags", "_terminus")

    def __init__(
        self, terminus: Terminus, tags: Sequence[bytes], fingerprints: Sequence[bytes], *, lasting: bool = True
    ) -> None:
        self._terminus = terminus
        self._lasting = lasting
        self._tags = tags
        self._fingerprints = fingerprints

    def operations(self) -> list[tuple[Kind, Sequence[bytes]]]:
        """Return the operations to write."""
        number = self._terminus.number
        if not (self._lasting and number):
            return []
        return [(Kind.ARRIVED, [encode_arrived(number, Disposition.ACCEPTED, self._tags, self._fingerprints)])]

    @property
    def bytes(self) -> int:
        """An upper bound of its part of the record."""
        return _HEAD_BYTES + sum(map(len, self._tags)) + _TAG_BYTES * len(self._tags)


class FreshArrivals:
    """The part of a decision that keeps the tags of the messages in the run that it places. The record has them if
    they are `lasting`.
    """

    __slots__ = ("_contents", "_lasting", "_tags", "_terminus")

    def __init__(
        self, terminus: Terminus, tags: Sequence[bytes], contents: Sequence[bytes], *, lasting: bool = True
    ) -> None:
        self._terminus = terminus
        self._lasting = lasting
        self._tags = tags
        self._contents = contents

    def operations(self) -> list[tuple[Kind, Sequence[bytes]]]:
        """Return the operation to write. It follows that of the run."""
        if not self._lasting:
            return []
        return [(Kind.ARRIVED, [encode_arrived(self._terminus.number, Disposition.ACCEPTED, self._tags, None)])]

    @property
    def bytes(self) -> int:
        """An upper bound of its part of the record."""
        return _HEAD_BYTES + sum(map(len, self._tags)) + len(self._tags)

    def apply(self, end: int, synced: int) -> None:
        """Keep the tags, after the record is written up to `end`."""
        accept(self._terminus, self._tags, self._contents, end, synced)


class _Tags:
    """The tags of messages that go to very many queues (`placing.Beside`)."""

    __slots__ = ("_contents", "_lasting", "_loan", "_tags", "_terminus")

    def __init__(
        self,
        terminus: Terminus,
        envelope: Envelope,
        contents: Sequence[bytes],
        queues: Sequence[Queue],
        tags: Sequence[bytes],
    ) -> None:
        self._terminus = terminus
        self._lasting = lasts(terminus, envelope, queues)
        self._loan = terminus.loan
        self._contents = contents
        self._tags = tags

    @property
    def wanted(self) -> bool:
        """Whether the link is still there. Otherwise its client learns from the next link that nothing has arrived."""
        return self._loan is not None and self._loan.current

    def work(self, begin: int, end: int) -> FreshArrivals:
        """Return the tags of some of the messages."""
        return FreshArrivals(self._terminus, self._tags[begin:end], self._contents[begin:end], lasting=self._lasting)


def accept(terminus: Terminus, tags: Sequence[bytes], contents: Sequence[bytes], lsn: int, synced: int) -> None:
    """Note accepted messages, and keep their contents in place of fingerprints for a while."""
    terminus.arrivals.accept_fresh(tags, contents, lsn, synced)
    if terminus.termini is not None:
        terminus.termini.fresh.add(terminus.arrivals, tags, contents)
        terminus.termini.durable.unsettled(terminus)


def lasts(terminus: Terminus, envelope: Envelope, queues: Sequence[Queue]) -> bool:
    """Return whether messages and tags survive a restart."""
    lasting = envelope.durable or any(queue.persists_all for queue in queues)
    return terminus.keeps and lasting and any(queue.durable for queue in queues)


def post(
    engine: Engine,
    terminus: Terminus,
    envelope: Envelope,
    contents: list[bytes],
    queues: Sequence[Queue],
    tags: Sequence[bytes],
) -> Receipt:
    """Publish a run of messages with these tags. Messages that a queue refused leave no tag."""
    if len(queues) > WIDE:
        return engine.publish(
            envelope, contents, queues, divided=True, beside=_Tags(terminus, envelope, contents, queues, tags)
        )
    if not lasts(terminus, envelope, queues):
        receipt = engine.publish(envelope, contents, queues)
        taken = [i for i in range(len(tags)) if i not in receipt.refused] if receipt.refused else range(len(tags))
        some = [contents[i] for i in taken]
        accept(terminus, [tags[i] for i in taken], some, receipt.lsn, engine.log.synced_lsn)
        return receipt

    def together(chosen: range, takers: Sequence[Queue]) -> int:
        decision = Decision(engine)
        part = slice(chosen.start, chosen.stop)
        decision.place(envelope, contents[part], takers)
        decision.record(FreshArrivals(terminus, tags[part], contents[part]))
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
