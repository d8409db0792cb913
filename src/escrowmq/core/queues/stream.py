"""Streams (`x-queue-type: stream`): entries stay when they are read, and every consumer has its own cursor."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

from escrowmq.core.budget import EXAMINED, STREAMED
from escrowmq.core.messages.entry import Entry, Run
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.availability import unavailable
from escrowmq.core.queues.backlog import Backlog
from escrowmq.core.queues.discipline import ENTRY_COST, TAKEN_BYTES, Detached, Discipline, Pager
from escrowmq.core.queues.measuring import measuring_stream
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.queues.queue import Queue
from escrowmq.core.queues.rotation import Consumers
from escrowmq.core.queues.selection import PIECE, Selector
from escrowmq.core.queues.serving import CHUNK, end_drains, hand
from escrowmq.core.queues.watching import Watcher, Watchers
from escrowmq.core.queues.withdrawal import Withdrawal
from escrowmq.core.records.references import Reference
from escrowmq.core.records.unreadable import LogUnreadable
from escrowmq.core.topology.arguments.consumer import StreamOffset

if TYPE_CHECKING:
    from escrowmq.core.deadlines import Deadline
    from escrowmq.core.queues.consumer import Consumer
    from escrowmq.core.queues.fifo import Fifo
    from escrowmq.core.queues.sealed import LevelRuns, SealedRuns
    from escrowmq.core.topology.arguments.queue import QueueOptions

_AGE_CHECK: Final = 1000  # milliseconds between two checks of the age of the oldest run
_DROPPED_TOGETHER: Final = 100  # runs that retention drops in one piece
_RUNS: Final = 50  # runs that a consumer gets in one piece
_DROPPED: Final[tuple[Run, Sequence[bytes]]] = (Run(Envelope("", ""), 0, 0), ())


class _Recent:
    """The newest runs, which are found by position in few steps however many they are."""

    __slots__ = ("_firsts", "_head", "_runs")

    def __init__(self) -> None:
        self._firsts = array("Q")
        self._runs: list[tuple[Run, Sequence[bytes]]] = []
        self._head = 0  # the runs before it have been dropped

    def __len__(self) -> int:
        return len(self._runs) - self._head

    @property
    def first(self) -> int:
        """The first position. IndexError if there is no run."""
        return self._firsts[self._head]

    def append(self, run: Run, contents: Sequence[bytes]) -> None:
        self._firsts.append(run.first)
        self._runs.append((run, contents))

    def drop(self) -> Sequence[bytes]:
        """Remove the oldest run, and return its contents."""
        head = self._head
        _, contents = self._runs[head]
        self._runs[head] = _DROPPED
        self._head = head + 1
        if self._head > 1024 and 2 * self._head > len(self._runs):
            del self._runs[: self._head], self._firsts[: self._head]
            self._head = 0
        return contents

    def runs(self) -> list[tuple[Run, Sequence[bytes]]]:
        """All runs, and those that were dropped lately."""
        return self._runs

    def find(self, position: int) -> tuple[Run, Sequence[bytes]]:
        """The last run that begins at or before `position`, which is not before `first`."""
        return self._runs[bisect_right(self._firsts, position, self._head) - 1]


class StreamLog:
    """The entries of a stream, as references. The newest runs are also in memory."""

    __slots__ = ("_pager", "_recent", "_resident", "_resident_limit", "backlog")

    def __init__(self, pager: Pager, resident_limit: int) -> None:
        self._pager = pager
        self._recent = _Recent()
        self._resident = 0
        self._resident_limit = resident_limit
        self.backlog = Backlog()

    def __len__(self) -> int:
        return self.backlog.messages

    def append(self, run: Run, contents: Sequence[bytes]) -> None:
        lsn = run.lsn or self._pager.store(run, contents)
        self.backlog.append(run.first, len(contents), lsn, run.index)
        self._recent.append(run, contents)
        self._resident += _size(contents)
        self._forget_old()

    def _forget_old(self) -> None:
        while self._resident > self._resident_limit and len(self._recent) > 1:
            self._resident -= _size(self._recent.drop())

    def read(self, position: int, most: int) -> list[Entry]:
        """Return at most `most` entries from `position` on, and at least one if there is any."""
        if self._recent and position >= self._recent.first:
            run, contents = self._recent.find(position)
            skip = position - run.first
            return list(map(Entry, range(position, position + most), contents[skip : skip + most], repeat(run)))
        found = self._find(position)
        if found is None:
            return []
        first = max(position, found.first)
        skip = first - found.first
        wanted = Reference(first, min(most, found.length - skip), found.lsn, found.start + skip)
        block = self._pager.load(wanted)
        run = Run(block.envelope, first, block.time, wanted.lsn, wanted.start)
        return list(map(Entry, range(first, first + wanted.length), block.contents, repeat(run)))

    def read_on(self, position: int, most: int, runs: int) -> list[Entry]:
        """Do `read` for up to this number of runs that follow each other, and about `TAKEN_BYTES`. Raises LogUnreadable
        for the first one only: the next call meets an unreadable run that ended this one.
        """
        entries = self.read(position, most)
        size = sum([len(entry.content) for entry in entries])
        while entries and len(entries) < most and runs > 1 and size < TAKEN_BYTES:
            runs -= 1
            try:
                more = self.read(entries[-1].position + 1, most - len(entries))
            except LogUnreadable:
                break
            if not more:
                break
            entries += more
            size += sum([len(entry.content) for entry in more])
        return entries

    def _find(self, position: int) -> Reference | None:
        """Return the reference that holds `position`, or the next one after it."""
        i = self.backlog.find(position)
        if i is not None and self.backlog.at(i).first + self.backlog.at(i).length <= position:
            i += 1
        return self.backlog.at(i) if i is not None and i < self.backlog.end else None

    def first_at(self, time: int) -> int | None:
        """Return the first position that arrived at `time` (milliseconds) or later; None if all are older."""
        low, high = self.backlog.begin, self.backlog.end
        while low < high:
            middle = (low + high) // 2
            if self._time(self.backlog.at(middle)) < time:
                low = middle + 1
            else:
                high = middle
        return self.backlog.at(low).first if low < self.backlog.end else None

    def _time(self, reference: Reference) -> int:
        return self._pager.load(reference._replace(length=1)).time

    def oldest(self) -> tuple[int, int]:
        """Return the time of the first run, and the size of its bodies in bytes. Raises IndexError if the stream is
        empty.
        """
        block = self._pager.load(self.backlog.peek())
        return block.time, sum(map(len, block.contents))

    def drop_oldest(self) -> Reference:
        reference = self.backlog.take(self.backlog.peek().length)
        if self._recent and self._recent.first <= reference.first:
            self._resident -= _size(self._recent.drop())
        return reference

    def take(self, most: int) -> list[Entry]:
        """Return nothing: entries do not leave a stream when they are read."""
        return []

    def put_back(self, entries: list[Entry]) -> None:
        """Do nothing: the entries have never left."""

    def peek(self) -> Entry | None:
        return None

    def levels(self) -> Iterator[tuple[int, Fifo]]:
        """Yield nothing: readers of a stream have cursors, and take nothing."""
        return iter(())

    def withdraw(self) -> Withdrawal:
        gone = Withdrawal([], [self.backlog.withdraw()], self._recent.runs())
        self._recent = _Recent()
        self._resident = 0
        return gone

    def references(self) -> Iterator[Reference]:
        return iter(self.backlog)

    def in_memory(self) -> list[Entry]:
        return []

    def loaded(self, start: int, most: int) -> list[Entry]:
        return []

    def backlogs(self) -> list[Backlog]:
        return [self.backlog]

    def known_deliveries(self) -> dict[int, int]:
        return {}

    def restore(self, found: Backlog, deliveries: dict[int, int], delivered_below: int) -> None:
        self.backlog.replace(found)

    def limit_memory(self, limit: int) -> None:
        self._resident_limit = limit
        self._forget_old()

    def level(self, envelope: Envelope) -> int:
        return 0

    def keeps(self, level: int, size: int) -> bool:
        """Return False: a stream appends run by run."""
        return False

    def admit(self, level: int, runs: LevelRuns) -> None:
        """Do nothing: a stream appends run by run."""

    def detach(self, most: int, parts: int) -> list[Detached]:
        """Return nothing: messages of a stream cannot be detached."""
        return []

    def attach(self, found: list[Reference], deliveries: dict[int, int]) -> None:
        """Do nothing: the messages have never left."""


class StreamQueue(Queue):
    """A queue that is read by position and keeps its entries up to an age and a size."""

    __slots__ = ("_age_deadline", "_caught_up", "_served_below", "_unread", "_watchers", "log", "measured_from")

    is_stream = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.consumers = Consumers()  # a stream serves all consumers, also with `single`
        self._caught_up: dict[Consumer, None] = {}  # these consumers have received everything below `_served_below`
        self._served_below = 1
        self._unread = 1  # where the log could not be read
        self.measured_from = 0  # `bytes` leaves out the messages before it
        self._watchers = Watchers()
        self._age_deadline: Deadline | None = None
        if self.options.max_age is not None:
            self._check_later()

    def _discipline(self) -> Discipline:
        self.log = StreamLog(self._host.pager, self._host.resident_limit)
        return self.log

    def _limit(self) -> None:
        self.limited = True
        self._drop = self.refuses = False

    def adopt(self, options: QueueOptions) -> None:
        """Keep messages up to another age and size from now on, because policies changed."""
        self.options = options
        if options.max_age is not None and self._age_deadline is None:
            self._check_later()
        self._host.left_over.begin(self._shrinking())

    def _shrinking(self) -> Iterator[None]:
        """Measure what is not measured if the size is limited, and drop what exceeds the limits, in pieces."""
        if self.options.max_length_bytes is not None:
            yield from measuring_stream(self, self._host, lambda: self._host.left_over.begin(self._shrinking()))
        while not self.deleted and (self._drop_by_size() or self._drop_by_age()):
            yield

    def _check_later(self) -> None:
        self._age_deadline = self._host.deadlines.set(self._host.now + _AGE_CHECK, self._check_age)

    def _admit(self, run: Run, contents: Sequence[bytes]) -> None:
        self.log.append(run, contents)
        self.logged = True
        self.bytes += sum(map(len, contents))
        self._drop_by_size()
        if self.consumers or self._watchers:
            self._host.dirty[self] = None

    def _admit_together(self, sealed: SealedRuns) -> None:
        for run, contents in zip(sealed.runs, sealed.contents, strict=True):
            self._admit(run, contents)
        self._host.left_over.add(sealed.dismantle())

    def recovered(self) -> None:
        super().recovered()
        if self.options.max_length_bytes is None:
            self.measured_from = self.next_position

    @property
    def size(self) -> int | None:
        """The size of the bodies in bytes; None while it is unknown.

        At a start, messages are measured only if `x-max-length-bytes` needs their size, because that reads them all.
        The size is known again when they have left.
        """
        if self.fault or (len(self.log) and self.log.backlog.peek().first < self.measured_from):
            return None
        return self.bytes

    # -- reading by position

    @property
    def begin(self) -> int:
        """Return the first position that is still there; `end` if there is none."""
        return self.log.backlog.peek().first if len(self.log) else self.visible_end

    @property
    def end(self) -> int:
        """Return the position after the last visible message."""
        return self.visible_end

    def read(self, position: int, most: int) -> list[Entry]:
        """Return at most `most` entries from `position` on, or from `begin` if that is later. They are of one run, so
        more may follow; there is at least one if `position` is before `end`. Raises UNAVAILABLE if the log cannot be
        read.
        """
        position = max(position, self.begin)
        if position >= self.visible_end or most <= 0:
            return []
        if self.fault:
            raise unavailable(self, self.fault)
        try:
            return self.log.read(position, most)
        except LogUnreadable as error:
            self._suspend(position, error)
            raise unavailable(self, str(error)) from error

    def position_at(self, time: int) -> int:
        """Return the position of the first message that arrived at `time` (milliseconds) or later; `end` if all are
        older. Raises UNAVAILABLE if the log cannot be read.
        """
        try:
            found = self.log.first_at(time)
        except LogUnreadable as error:
            raise unavailable(self, str(error)) from error
        return self.visible_end if found is None else found

    def watch(self, position: int, watcher: Watcher) -> None:
        """Call `watcher.ready` once, in a turn, when there is a message at `position` or later, or when the stream is
        deleted. A watcher has one position; another one replaces it.
        """
        self._watchers.add(position, watcher)
        if position < self.visible_end:
            self._host.dirty[self] = None

    def unwatch(self, watcher: Watcher) -> None:
        """Forget a watcher."""
        self._watchers.remove(watcher)

    # -- consumers

    def attached(self, consumer: Consumer) -> None:
        consumer.cursor = self._place_of(consumer.options.stream_offset)

    def _place_of(self, offset: StreamOffset) -> int:
        """Return the position at which a reader begins."""
        backlog = self.log.backlog
        if not len(self.log):
            return max(self.next_position, offset.value + 1) if offset.kind == "offset" else self.next_position
        match offset.kind:
            case "first":
                return backlog.peek().first
            case "last":
                return backlog.at(backlog.end - 1).first
            case "next":
                return self.next_position
            case "offset":
                return max(backlog.peek().first, offset.value + 1)
            case "time" | "age":
                time = offset.value if offset.kind == "time" else self._host.now - offset.value
                found = self.log.first_at(time)
                return self.next_position if found is None else found

    def dispatch(self, *, whole: bool = False) -> None:
        """Deliver entries to consumers that have credit and have not received everything. Others are not examined."""
        consumers, end = self.consumers, self.visible_end
        if self.fault:
            return
        if self._watchers and not self._watchers.call(end, self._host.budget):
            self._host.dirty[self] = None
            return
        if end > self._served_below:
            self._served_below = end
            for consumer in self._caught_up:
                consumers.admit(consumer)
            self._caught_up.clear()
        budget = self._host.budget
        while found := consumers.next(1):
            consumer = found[0]
            cursor = consumer.cursor
            try:
                most = min(consumer.room(), CHUNK) if consumer.selects is None else PIECE
                entries = self.log.read_on(cursor, most, _RUNS) if cursor < end else []
            except LogUnreadable as error:
                self._suspend(cursor, error)
                return
            if consumer.byte_credit is not None and entries and consumer.selects is None:
                entries = consumer.byte_credit.fitting(entries)
                if not entries:
                    consumers.rest(consumer)
                    continue
            if entries and consumer.selects is not None:
                self._hand_some(consumer, entries, consumer.selects)
                if budget.left <= 0:  # also with `whole`: what nobody has examined waits
                    self._host.dirty[self] = None
                    return
            elif entries:
                consumer.cursor = entries[-1].position + 1
                hand(self, self._host, consumer, entries)
                budget.left -= len(entries) // STREAMED
                if budget.left <= 0 and not whole:
                    self._host.dirty[self] = None
                    return
            else:
                consumers.rest(consumer)
                self._rest(consumer)
        if consumers.draining:
            end_drains(self)

    def _hand_some(self, consumer: Consumer, entries: list[Entry], selects: Selector) -> None:
        """Deliver the entries that a consumer with a selector wants."""
        room = consumer.room()
        chosen: list[Entry] = []
        end = consumer.cursor
        for entry in entries:
            if selects(self, entry):
                chosen.append(entry)
                if consumer.byte_credit is not None and len(consumer.byte_credit.fitting(chosen)) < len(chosen):
                    chosen.pop()
                    break
            end = entry.position + 1
            if len(chosen) == room:
                break
        self._host.budget.left -= EXAMINED * (end - consumer.cursor)
        if end == consumer.cursor:
            self.consumers.rest(consumer)
            return
        consumer.cursor = end
        hand(self, self._host, consumer, chosen)

    def _suspend(self, position: int, error: LogUnreadable) -> None:
        self._unread = position
        self._host.unavailable.suspend(self, error)

    def probe(self) -> None:
        self.log.read(self._unread, 1)

    def _rest(self, consumer: Consumer) -> None:
        caught_up = self._caught_up
        caught_up[consumer] = None
        if len(caught_up) > 2 * len(self.consumers):  # most of these consumers were removed
            self._caught_up = {consumer: None for consumer in caught_up if consumer.attached}

    def has_for(self, consumer: Consumer) -> bool:
        credit = consumer.byte_credit
        return consumer.cursor < self.visible_end and (credit is None or (credit.left > 0 and not credit.halted))

    def note_delivered(self, entries: list[Entry]) -> None:
        """Note that `entries` are delivered. A stream does not record whether they were delivered before."""
        self.change()
        self.unsettled += len(entries)
        self.counters.delivered += len(entries)

    def count_read(self, count: int) -> None:
        """Count messages that a client has read by their positions. There is nothing to settle."""
        self.change()
        self.counters.auto_settled += count
        self.counters.accepted += count

    def _drop_by_size(self) -> bool:
        """Drop runs beyond the limit in bytes. Return whether there may be more of them, for the next piece."""
        most = self.options.max_length_bytes
        if most is None:
            return False
        left = _DROPPED_TOGETHER
        while self.bytes > most and len(self.log.backlog) and self.log.backlog.end - self.log.backlog.begin > 1:
            oldest = self._oldest() if left else None
            if oldest is None:
                return not left
            self._drop_oldest(Outcome.DROPPED, oldest[1])
            left -= 1
        return False

    def _drop_by_age(self) -> bool:
        """Drop runs that are too old. Return whether there may be more of them, for the next piece."""
        if self.options.max_age is None:
            return False
        left = _DROPPED_TOGETHER
        while self.log.backlog.end - self.log.backlog.begin > 1:
            oldest = self._oldest() if left else None
            if oldest is None:
                return not left
            if oldest[0] + self.options.max_age > self._host.now:
                return False
            self._drop_oldest(Outcome.EXPIRED, oldest[1])
            left -= 1
        return False

    def _check_age(self) -> None:
        self._age_deadline = None
        if self.options.max_age is not None:
            if self._drop_by_age():
                self._host.left_over.begin(self._shrinking())
            self._check_later()

    def retire(self) -> None:
        super().retire()
        if self._age_deadline is not None:
            self._age_deadline.cancel()
        self._watchers.end()

    def _oldest(self) -> tuple[int, int] | None:
        """Return the time of the first run and the size of its bodies, or None if the log cannot be read there."""
        try:
            return self.log.oldest()
        except LogUnreadable as error:
            self._suspend(self.log.backlog.peek().first, error)
            return None

    def _drop_oldest(self, outcome: Outcome, size: int) -> None:
        self.change()
        reference = self.log.drop_oldest()
        if reference.first >= self.measured_from:
            self.bytes -= size
        self._host.removals.forget(self, [reference], outcome)


def _size(contents: Sequence[bytes]) -> int:
    return sum(map(len, contents)) + ENTRY_COST * len(contents)
