"""Planted bugs of settlements in pieces."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from escrowmq.core.engine import Engine
from escrowmq.core.messages.entry import Entry
from escrowmq.core.queues.consumer import Consumer
from escrowmq.core.queues.fifo import Fifo
from escrowmq.core.queues.queue import Queue
from escrowmq.core.queues.returning import Returns, Standstill
from escrowmq.core.queues.settlement import Settlements
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.references import ranges_of
from escrowmq.core.records.settling import encode_settle

_requeue = Engine.requeue
_add = Settlements.add


def no_standstill(self: Standstill, queues: Iterable[Queue]) -> None:
    """Let a queue deliver while some of its messages return."""
    self._queues = []


def behind_the_others(self: Fifo, entries: list[Entry]) -> None:
    """Put each piece at the tail."""
    self.head.extend(entries)


def piece_forgotten(self: Engine, consumer: Consumer, entries: list[Entry]) -> None:
    """Requeue a piece without its last delivery."""
    _requeue(self, consumer, entries[: max(1, len(entries) - 1)])


def recorded_before_it_is_taken(self: Settlements, queue: Queue, entries: Iterable[Entry], outcome: Any) -> None:
    """Write the record of a piece and of the next two deliveries, which are settled only in the next piece."""
    some = list(entries)
    _add(self, queue, some, outcome)
    positions = [entry.position for entry in some]
    ahead = [*positions, positions[-1] + 1, positions[-1] + 2]
    self._log.append(Kind.SETTLE, encode_settle(queue.ident, outcome, ranges_of(ahead)))


def first_piece_only(self: Returns) -> None:
    """Return one piece, and forget the others."""
    if self._waiting:
        returning, back = self._waiting.popleft()
        returning.step(back, self._host.dirty, self.piece)
        returning._pause.end(self._host.dirty)
        self._host.holders.pop(returning, None)


PLANTED: Final[dict[str, dict[tuple[Any, str], object]]] = {
    "no standstill while messages return": {(Standstill, "__init__"): no_standstill},
    "a piece returns to the tail": {(Fifo, "put_back"): behind_the_others},
    "the last delivery of a piece is forgotten": {(Engine, "requeue"): piece_forgotten},
    "a record that is ahead of its piece": {(Settlements, "add"): recorded_before_it_is_taken},
    "only the first piece of a lost client returns": {(Returns, "step"): first_piece_only},
}
