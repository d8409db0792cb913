"""The settlements of a turn, gathered into one record for each queue and outcome."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from escrowmq.core.counters import count_left
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.references import ranges_of
from escrowmq.core.records.settling import encode_settle

if TYPE_CHECKING:
    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.ports import Log
    from escrowmq.core.queues.delivery_log import Deliveries
    from escrowmq.core.queues.queue import Queue

_run = attrgetter("run")
_lsn = attrgetter("run.lsn")
_SETTLE: Final = Kind.SETTLE  # found sooner than a member of an enumeration
_ACCEPTED: Final = Outcome.ACCEPTED


class Settlements:
    """Entries that left their queues in this turn, until `flush` records them."""

    __slots__ = ("_log", "_waiting", "deliveries")

    def __init__(self, log: Log) -> None:
        self._log = log
        self.deliveries: Deliveries | None = None
        self._waiting: dict[tuple[Queue, Outcome], list[Entry]] = {}

    def add(self, queue: Queue, entries: Sequence[Entry], outcome: Outcome) -> None:
        """Note that `entries` have left `queue`. Queues that have nothing in the log cost next to nothing."""
        if outcome is _ACCEPTED:
            queue.counters.accepted += len(entries)
        else:
            count_left(queue, outcome, len(entries))
        if queue.marks:
            queue.unmark([entry.position for entry in entries])
        if not queue.logged:
            return
        key = (queue, outcome)
        waiting = self._waiting.get(key)
        if waiting is None:
            self._waiting[key] = list(entries)
        else:
            waiting.extend(entries)

    def flush(self) -> None:
        """Append the records, and release the entries' content in the log."""
        if self.deliveries is not None:  # deliveries are recorded before their settlements
            self.deliveries.flush()
        if not self._waiting:
            return
        log = self._log
        lsns: list[int] = []
        counts: list[int] = []
        for (queue, outcome), entries in self._waiting.items():
            if len(entries) == 1:
                run = entries[0].run
                if queue.durable and run.envelope.durable:
                    log.append(_SETTLE, encode_settle(queue.ident, outcome, ((entries[0].position, 1),)))
                if run.lsn:
                    lsns.append(run.lsn)
                    counts.append(1)
                continue
            runs = set(map(_run, entries))
            alone = runs.pop() if len(runs) == 1 else None
            if (
                alone is not None and alone.lsn and queue.durable and alone.envelope.durable
            ):  # the same as below, in fewer steps
                positions = [entry.position for entry in entries]
                log.append(_SETTLE, encode_settle(queue.ident, outcome, ranges_of(positions)))
                lsns.append(alone.lsn)
                counts.append(len(entries))
                continue
            positions = durable_positions(queue, entries)
            if positions:
                log.append(_SETTLE, encode_settle(queue.ident, outcome, ranges_of(positions)))
            by_lsn = _by_lsn(entries)
            lsns += by_lsn.keys()
            counts += by_lsn.values()
        log.release_each(lsns, counts)
        self._waiting.clear()


def durable_positions(queue: Queue, entries: Iterable[Entry]) -> list[int]:
    """Return the positions of the entries that would survive a restart."""
    if not queue.durable:
        return []
    return [entry.position for entry in entries if entry.run.envelope.durable]


def release(log: Log, entries: Iterable[Entry]) -> None:
    """Release the content of `entries` in the log."""
    by_lsn = _by_lsn(entries)
    log.release_each([*by_lsn], [*by_lsn.values()])


def _by_lsn(entries: Iterable[Entry]) -> Counter[int]:
    """Return the number of entries in each block of the log. Entries that are only in memory are left out."""
    found = Counter(map(_lsn, entries))
    found.pop(0, None)
    return found
