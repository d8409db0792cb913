"""Runs of a large commit on one queue. They are made ready in pieces, invisible, and then admitted in few steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Final

from escrowmq.core.messages.entry import Entry
from escrowmq.core.queues.backlog import Backlog
from escrowmq.core.queues.discipline import ENTRY_COST, HEAVY
from escrowmq.core.records.references import Reference

if TYPE_CHECKING:
    from escrowmq.core.messages.entry import Run
    from escrowmq.core.ports import Log
    from escrowmq.core.queues.discipline import Pager
    from escrowmq.core.queues.queue import Queue

PIECE: Final = 500
"""Messages that are made ready in one step. Each costs about half a microsecond, and each run one more."""

FREED: Final = 5000
"""Runs whose memory is freed in one step."""


class LevelRuns:
    """The runs of one level (`Discipline.level`): entries for memory first, then references to the others."""

    __slots__ = ("entries", "heavy", "resident", "runs", "tail")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.runs: list[tuple[Run, list[bytes]]] = []  # those of the entries
        self.resident = 0
        self.heavy: list[tuple[int, int]] = []  # long headers among the entries: last position, bytes
        self.tail = Backlog()

    def keep(self, run: Run, contents: list[bytes], begin: int) -> None:
        """Make entries of `contents`, which are the part of the run from number `begin` on."""
        first = run.first + begin
        self.entries.extend(map(Entry, range(first, first + len(contents)), contents, repeat(run)))
        self.resident += sum(map(len, contents)) + ENTRY_COST * len(contents)

    def weigh(self, run: Run, contents: list[bytes]) -> None:
        """Note a run whose entries are kept, and count its header if that is long."""
        header = run.envelope.header
        if len(header) > HEAVY and not (self.runs and self.runs[-1][0].envelope is run.envelope):
            self.resident += len(header)
            self.heavy.append((run.first + len(contents) - 1, len(header)))
        self.runs.append((run, contents))

    def refer(self, run: Run, contents: Sequence[bytes], pager: Pager) -> None:
        """Keep only a reference to the run."""
        lsn = run.lsn or pager.store(run, contents)
        self.tail.append(run.first, len(contents), lsn, run.index)

    def page_out(self, pager: Pager) -> None:
        """Keep only references, because the messages before these are not in memory, either."""
        references, self.tail = self.tail, Backlog()
        for run, contents in self.runs:
            self.refer(run, contents, pager)
        self.tail.join(references, 0)
        self.entries, self.runs, self.heavy, self.resident = [], [], [], 0


class SealedRuns:
    """The runs of one commit on one queue, in order.

    Until `place`, a run's `first` counts from the first of these messages, and its `lsn` is the offset of its block in
    the record of the commit (0: the log does not hold it), unless its block is elsewhere in the log. `ready` is true
    once they may be admitted.
    """

    __slots__ = (
        "_done",
        "_elsewhere",
        "_logged",
        "_record",
        "contents",
        "count",
        "first",
        "levels",
        "ready",
        "runs",
        "size",
        "time",
    )

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.contents: list[Sequence[bytes]] = []
        self.count = self.size = 0
        self.first = 0
        self.time = 0
        self._logged = False
        self.ready = False
        self.levels: dict[int, LevelRuns] = {}
        self._record = 0
        self._done = 0  # the number of runs that have their position and address
        self._elsewhere: set[int] = set()  # numbers of the runs whose `lsn` is an address

    def add(self, run: Run, contents: Sequence[bytes], size: int | None = None, *, elsewhere: bool = False) -> None:
        """Add a run at the end, whose bodies have `size` bytes. With `elsewhere`, its `lsn` is an address."""
        run.first = self.count
        if elsewhere:
            self._elsewhere.add(len(self.runs))
        self.runs.append(run)
        self.contents.append(contents)
        self.count += len(contents)
        self.size += sum(map(len, contents)) if size is None else size
        self._logged = self._logged or run.lsn > 0

    @property
    def logged(self) -> bool:
        """Whether the log holds any of the messages, once they are admitted."""
        return self._logged or any(level.tail.messages for level in self.levels.values())

    def place(self, first: int, record: int, time: int) -> None:
        """Note the first position, the LSN of the record's payload, and the time of the commit."""
        self.first, self._record, self.time = first, record, time

    def make_ready(self, queue: Queue, pager: Pager) -> Iterator[int]:
        """Give the runs their positions, and make their entries. Yield the work of each piece."""
        done = 0
        for run, contents in zip(self.runs, self.contents, strict=True):
            if queue.deleted:
                return
            run.first += self.first
            if run.lsn and self._done not in self._elsewhere:
                run.lsn += self._record
            self._done += 1
            done += 2
            if queue.is_stream:
                run.time = self.time
            else:
                if run.envelope.ttl is not None or queue.ttl_possible:
                    run.expires_at = queue.expiry(run.envelope, run.time)
                for count in self._in_level(queue, pager, run, contents):
                    done += count
                    if done >= PIECE:
                        yield done
                        done = 0
            if done >= PIECE:
                yield done
                done = 0
        yield done

    def _in_level(self, queue: Queue, pager: Pager, run: Run, contents: Sequence[bytes]) -> Iterator[int]:
        """Add a run to its level. Yield the number of entries that were made, after each piece."""
        number = queue.order.level(run.envelope)
        level = self.levels.get(number)
        if level is None:
            level = self.levels[number] = LevelRuns()
        if level.tail.messages or not (isinstance(contents, list) and queue.order.keeps(number, level.resident)):
            level.refer(run, contents, pager)  # contents of prepared branches that are not lists are in the log
            return
        for begin in range(0, len(contents), PIECE):
            some = contents[begin : begin + PIECE]
            level.keep(run, some, begin)
            yield len(some)
        level.weigh(run, contents)

    def dismantle(self) -> Iterator[None]:
        """Free the memory of the runs after their admission, a piece at a time."""
        for level in self.levels.values():
            while level.runs:
                del level.runs[-FREED:]
                yield
        while self.runs:
            del self.runs[-FREED:], self.contents[-FREED:]
            yield

    def _lsn(self, number: int, run: Run) -> int:
        return run.lsn if number < self._done or number in self._elsewhere else run.lsn + self._record

    def references(self) -> list[Reference]:
        """Return references to the durable messages, for a snapshot."""
        found = []
        for i, (run, contents) in enumerate(zip(self.runs, self.contents, strict=True)):
            if run.envelope.durable:
                first = run.first if i < self._done else run.first + self.first
                found.append(Reference(first, len(contents), self._lsn(i, run), run.index))
        return found

    def release(self, log: Log) -> None:
        """Release the content in the log, because the queue is deleted. Nothing is to be made ready any more."""
        for i, (run, contents) in enumerate(zip(self.runs, self.contents, strict=True)):
            if run.lsn:
                log.release(self._lsn(i, run), len(contents))
        self.runs, self.contents = [], []


def unsynced_references(queue: Queue) -> list[Reference]:
    """Return references to the durable messages of a queue that are not visible yet, for a snapshot."""
    found = []
    for _, run, contents in queue.unsynced:
        if isinstance(run, SealedRuns):
            found += run.references()
        elif run.envelope.durable:
            found.append(Reference(run.first, len(contents), run.lsn, run.index))
    return found
