"""The hidden queue of a virtual host in which half messages wait (HALF-1). Nothing is ever delivered from it.

A half message is stored there by one record, and leaves by another one that also places it in its destination. Paging,
snapshots and compaction are those of any queue. Its position there is the half message's number.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from escrowmq.core.half.ledger import HalfLedger
from escrowmq.core.half.pending import PendingOrder
from escrowmq.core.half.timetable import Timetable
from escrowmq.core.messages.entry import Entry, Run
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.discipline import ENTRY_COST
from escrowmq.core.queues.queue import Queue
from escrowmq.core.topology.arguments.queue import QueueOptions

if TYPE_CHECKING:
    from escrowmq.core.access.holdings import Holding
    from escrowmq.core.deadlines import Deadline
    from escrowmq.core.engine import Engine
    from escrowmq.core.queues.discipline import Discipline

NAME: Final = "amq.half"
"""The name of each hidden queue in the log. Clients cannot declare it, and the virtual host does not list it."""
RECENT_BYTES: Final = 1 << 20
"""Bytes of half messages that stay in memory, since most are decided soon after they arrived."""
_SOME: Final = Envelope("", "", durable=True)


class HalfQueue(Queue):
    """The half messages of a virtual host. `ledger` holds their state, `timetable` the times of their checks."""

    __slots__ = (
        "_engine",
        "_recent",
        "_recent_bytes",
        "_unsynced",
        "deadline",
        "holdings",
        "ledger",
        "running",
        "timetable",
        "waiting",
    )

    def __init__(self, engine: Engine, delete: Callable[[Queue], int], ident: int, vhost: str) -> None:
        self._engine = engine
        self._recent: dict[int, tuple[Envelope, bytes, int]] = {}
        self._recent_bytes = 0
        self._unsynced: deque[tuple[int, int]] = deque()  # LSN and number
        self.ledger = HalfLedger()
        self.timetable = Timetable()
        self.holdings: dict[str, Holding] = {}  # by user
        self.deadline: Deadline | None = None
        self.running = False
        super().__init__(engine, delete, ident, vhost, NAME, QueueOptions(), durable=True)
        self.persists_all = True

    def _discipline(self) -> Discipline:
        self.waiting = PendingOrder(self._host.pager)
        return self.waiting

    def _admit(self, run: Run, contents: Sequence[bytes]) -> None:
        self.waiting.append(run, contents)
        self.logged = True
        for number, content in enumerate(contents, run.first):
            self._recent[number] = run.envelope, content, run.time
            self._recent_bytes += len(content) + ENTRY_COST
        while self._recent_bytes > RECENT_BYTES:
            self._forget(next(iter(self._recent)))

    def _forget(self, number: int) -> None:
        _, content, _ = self._recent.pop(number)
        self._recent_bytes -= len(content) + ENTRY_COST

    def dispatch(self, *, whole: bool = False) -> None:
        """Do nothing: no consumer gets anything from here."""

    def recovered(self) -> None:
        """Do nothing: the checks begin when all queues are recovered."""

    def stored(self, number: int, lsn: int) -> None:
        """Note that half messages from `number` on are on disk when the log is synced up to `lsn`."""
        self.synced(number)
        self._unsynced.append((lsn, number))

    def synced(self, number: int) -> bool:
        """Return whether a half message is on disk."""
        synced = self._host.log.synced_lsn
        while self._unsynced and self._unsynced[0][0] <= synced:
            self._unsynced.popleft()
        return not self._unsynced or number < self._unsynced[0][1]

    def load(self, number: int) -> tuple[Envelope, bytes] | None:
        """Return envelope and content of a half message; None if it has left. Raises LogUnreadable."""
        recent = self._recent.get(number)
        if recent is not None:
            return recent[0], recent[1]
        reference = self.waiting.find(number)
        if reference is None:
            return None
        block = self._host.pager.load(reference)
        return block.envelope, block.contents[0]

    def entry(self, number: int, *, whole: bool) -> Entry | None:
        """Return the entry of a half message, with its content if it is wanted `whole`; None if it has left. Raises
        LogUnreadable.
        """
        reference = self.waiting.find(number)
        if reference is None:
            return None
        if not whole:
            return Entry(number, b"", Run(_SOME, number, 0, reference.lsn, reference.start))
        recent = self._recent.get(number)
        if recent is not None:
            envelope, content, time = recent
        else:
            block = self._host.pager.load(reference)
            envelope, content, time = block.envelope, block.contents[0], block.time
        return Entry(number, content, Run(envelope, number, time, reference.lsn, reference.start))

    def remove_each(self, numbers: Sequence[int]) -> None:
        """Take out half messages that are decided."""
        self.change()
        self.waiting.remove_each(numbers)
        for number in numbers:
            if number in self._recent:
                self._forget(number)

    def retire(self) -> None:
        super().retire()
        if self.deadline is not None:
            self.deadline.cancel()
        for holding in self.holdings.values():
            holding.close()
        self._recent.clear()
        self.ledger, self.timetable = HalfLedger(), Timetable()
