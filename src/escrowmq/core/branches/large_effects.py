"""The effects of large transactions: gathered into the draft of one record, and applied in pieces after it is written.

The messages that it adds are made ready behind a seal. All of them become visible at once, when the record is synced
and all are ready.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from escrowmq.core.branches import resolution
from escrowmq.core.branches.branch import Publication, Settlement
from escrowmq.core.branches.decision import check_totals
from escrowmq.core.branches.resolution import divided, give_back
from escrowmq.core.counters import count_left
from escrowmq.core.messages.entry import Run
from escrowmq.core.queues.outcome import Disposition, Outcome
from escrowmq.core.queues.returning import Standstill, part_of
from escrowmq.core.queues.sealed import SealedRuns
from escrowmq.core.queues.settlement import durable_positions, release
from escrowmq.core.records.blocks import encode_block
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.references import ranges_of
from escrowmq.core.records.settling import encode_settle

if TYPE_CHECKING:
    from escrowmq.core.branches.xa_branch import PreparedRun
    from escrowmq.core.budget import Budget
    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.messages.envelope import Envelope
    from escrowmq.core.messages.marks import Modification
    from escrowmq.core.ports import Holder
    from escrowmq.core.queues.consumer import Consumer
    from escrowmq.core.queues.discipline import Pager
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.records.drafts import Draft

PIECE: Final = 500
"""Deliveries that are settled in one step."""
QUEUES: Final = 2000
"""Queues of a publication that it is gathered for in one step. Its messages are in the record once for each step."""
_ALIKE: Final = 20  # messages of a run that cost one unit of the budget
_SETTLED: Final = 8  # deliveries that do
_MADE: Final = 6  # entries that do
_FILLED: Final = 16  # positions that do
_FREED: Final = 4  # objects that are freed


class Host(resolution.Host, Protocol):
    """The part of the engine that large transactions need."""

    dirty: dict[Queue, None]
    pager: Pager
    requests: Budget
    holders: dict[Holder, None]
    promised: dict[Queue, tuple[int, int]]

    def show(self, queues: Collection[Queue]) -> None:
        """Let runs that `queues` keep back become visible, in pieces, unless they wait for a sync."""
        ...


class LargeEffects:
    """The effects of one record. Each call that gathers some returns its cost in units of the turn's budget, and
    changes nothing. After `apply`, `complete` must be carried through to its end.

    It holds the deliveries that return to their queues until they do (`core.ports.Holder`).
    """

    def __init__(self, engine: Host, draft: Draft, inline_bytes: int | None = None) -> None:
        """`inline_bytes` bounds the blocks in the record itself. Others precede it in records of their own."""
        self._engine = engine
        self._draft = draft
        self._inline = inline_bytes
        self._time = self._recorded = engine.now
        self._sealed: dict[Queue, SealedRuns] = {}
        self._wanted: dict[Queue, list[int]] = {}  # messages and bytes published to queues that may refuse them
        self._retained = 0
        self._pages: list[tuple[int, int]] = []  # addresses of blocks in records of their own, and messages to retain
        self._runs: list[tuple[PreparedRun, int]] = []  # with the messages of which the queues take over the block
        self._gone: list[tuple[Consumer, list[Entry], Outcome]] = []
        self._back: list[tuple[Consumer, list[Entry], Modification | Disposition]] = []
        self._returning: dict[Queue, None] = {}
        self._pause: Standstill | None = None
        self._used: list[list[Any]] = []
        self._bases: dict[int, int] = {}
        self.bereft = False
        self.returned: list[Publication] = []

    # -- gathering

    @property
    def outdated(self) -> bool:
        """Whether a queue was deleted that had got messages, so that all must be gathered again."""
        return any(queue.deleted for queue in self._sealed)

    def publish(self, publication: Publication) -> Iterator[int]:
        """Gather the messages of a publication, for a part of its queues after the other. Yield the cost of each."""
        queues, contents = self._living(publication.queues), publication.contents
        if queues:
            for queue in queues:
                if queue.refuses:
                    total = self._wanted.setdefault(queue, [0, 0])
                    total[0] += len(contents)
                    total[1] += sum(map(len, contents))
            for begin in range(0, len(queues), QUEUES):
                some = queues[begin : begin + QUEUES]
                self.place(publication.envelope, contents, some)
                yield 1 + len(some) + len(contents) // _ALIKE
            return
        if publication.mandatory:
            self.returned.append(publication)
        yield 1

    def _living(self, queues: tuple[Queue, ...]) -> tuple[Queue, ...]:
        if any(queue.deleted for queue in queues):
            self.bereft = True
            return tuple(queue for queue in queues if not queue.deleted)
        return queues

    def place(self, envelope: Envelope, contents: Sequence[bytes], queues: Sequence[Queue]) -> None:
        """Add a run to `queues`, after the runs placed earlier."""
        if not envelope.durable and any(queue.persists_all for queue in queues):
            envelope = envelope.lasting()
        some = contents if isinstance(contents, list) else list(contents)
        targets = self._targets(envelope, queues)
        lsn, elsewhere = 0, False
        if targets:
            block = encode_block(self._time, envelope, some)
            size = sum(map(len, block))
            retained = len(some) * len(targets)
            if self._inline is None or size <= self._inline:
                timeless = any(queue.is_stream for queue in queues)
                lsn = self._draft.publish(targets, block, timeless=timeless)
                self._retained += retained
                if self._inline is not None:
                    self._inline -= size
            else:
                lsn, elsewhere = self._engine.log.append(Kind.PAGE, *block), True
                self._pages.append((lsn, retained))
                self._draft.placed(targets, lsn, len(some))
        for queue in queues:
            run = Run(envelope, 0, self._time, lsn if queue.durable else 0)
            self._sealed[queue].add(run, some, elsewhere=elsewhere and run.lsn > 0)

    def _targets(self, envelope: Envelope, queues: Sequence[Queue]) -> list[tuple[int, int]]:
        """Return the queues that keep the next run in the log, with relative positions."""
        targets = []
        for queue in queues:
            sealed = self._sealed.get(queue)
            if sealed is None:
                sealed = self._sealed[queue] = SealedRuns()
            if queue.durable and envelope.durable:
                targets.append((queue.ident, sealed.count))
        return targets

    def place_prepared(self, run: PreparedRun) -> Iterator[int]:
        """Gather the messages of a prepared branch, for a part of its queues after the other. Yield the cost of each.
        Raises LogUnreadable if they must be read and cannot.
        """
        queues, count, taken = self._living(run.queues), len(run.contents), 0
        anew = not run.lsn or run.has_to_be_written_again(self._engine.now)
        for begin in range(0, len(queues), QUEUES):
            some = queues[begin : begin + QUEUES]
            targets = self._targets(run.envelope, some)
            if targets and anew:
                self.place(run.envelope, run.contents, some)
            else:
                if targets:
                    self._draft.placed(targets, run.lsn, count)
                    taken += count * len(targets)
                for queue in some:
                    placed = Run(run.envelope, 0, run.time, run.lsn if queue.durable else 0)
                    contents = list(run.contents) if queue.is_stream or not placed.lsn else run.contents
                    self._sealed[queue].add(placed, contents, run.size, elsewhere=placed.lsn > 0)
            yield len(some)
        if run.mandatory and not queues:
            self.returned.append(Publication(run.envelope, list(run.contents), (), mandatory=True))
        self._runs.append((run, taken))
        yield 1 + count // _ALIKE

    def end_of_piece(self, settlement: Settlement, begin: int) -> int:
        """Return the number behind the last delivery of a settlement that is settled together with number `begin`."""
        entries, routes = settlement.entries, settlement.routes
        end = min(begin + PIECE, len(entries))
        if settlement.disposition is Disposition.REJECTED:
            portion, queue = self._engine.dead_letters.portion(Outcome.REJECTED), settlement.consumer.queue
            for i in range(begin, end):
                if routes is None:
                    fits = portion.admits(queue, entries[i])
                else:
                    fits = portion.admits_places(len(routes.get(entries[i].position, ())))
                if not fits:
                    return i
        return end

    def settle(self, settlement: Settlement, entries: list[Entry]) -> int:
        """Gather the outcome of `entries`, which are a part of a settlement."""
        engine, consumer, queue = self._engine, settlement.consumer, settlement.consumer.queue
        outcome, entries, returning = divided(settlement, entries)
        if outcome is Outcome.DELIVERY_LIMIT:
            self._back.append((consumer, returning, settlement.modification or settlement.disposition))
            self._returning[queue] = None
            if not entries:
                return 1 + len(returning) // _SETTLED
        self._gone.append((consumer, entries, outcome))
        if queue.deleted:
            self.bereft = True
        elif not queue.is_stream:
            if outcome is not Outcome.ACCEPTED:
                if settlement.routes is None:
                    engine.dead_letters.place(self, queue, entries, outcome, settlement.modification)
                else:
                    engine.dead_letters.place_routed(self, queue, entries, outcome, settlement.routes)
            positions = durable_positions(queue, entries)
            if positions:
                self._draft.add(Kind.SETTLE, encode_settle(queue.ident, outcome, ranges_of(positions)))
        return 1 + (len(entries) // _SETTLED if outcome is Outcome.ACCEPTED else len(entries))

    # -- applying

    def check_room(self) -> None:
        """Raises LIMIT_EXCEEDED if a queue that refuses messages at its limit has no room for the published ones."""
        check_totals(self._wanted)

    def fill(self) -> Iterator[int]:
        """Write the positions that the messages would get now into the draft. Yield the cost of each piece."""
        self._bases = self.bases()
        self._recorded = self._engine.now
        for count in self._draft.fill(self._bases, self._recorded):
            yield 1 + count // _FILLED

    def finish(self) -> list[bytes]:
        """Return the parts of the record. Its time is that of `fill` if no other message has come since."""
        bases = self.bases()
        if bases != self._bases:
            self._recorded = self._engine.now
        return self._draft.finish(bases, self._recorded)

    def bases(self) -> dict[int, int]:
        """Return the first position that the record takes in each queue, by the queue's number."""
        return {queue.ident: queue.next_position for queue in self._sealed}

    def apply(self, record: int, end: int, used: Sequence[list[Any]] = ()) -> None:
        """Apply the record, whose payload is at `record` and which ends at `end` (0: nothing was written). The lists
        `used` are freed at last.
        """
        engine = self._engine
        if self._retained:
            engine.log.retain(record, self._retained)
        for lsn, count in self._pages:
            engine.log.retain(lsn, count)
        for queue, sealed in self._sealed.items():
            sealed.place(queue.next_position, record, self._recorded)
            queue.enqueue_sealed(sealed, end)
        engine.holders[self] = None
        self._pause = Standstill(self._returning)
        self._used = list(used)

    def complete(self) -> Iterator[None]:
        """Apply the rest, and yield whenever the turn's budget is used up."""
        requests = self._engine.requests
        for cost in self._rest():
            requests.left -= cost
            if requests.left <= 0:
                yield
        queues, self._sealed = self._sealed, {}
        for sealed in queues.values():
            sealed.ready = True
        self._engine.show(queues)

    def _rest(self) -> Iterator[int]:
        engine = self._engine
        for queue, sealed in self._sealed.items():
            for count in sealed.make_ready(queue, engine.pager):
                yield 1 + count // _MADE
        self._gone.reverse()
        while self._gone:
            consumer, entries, outcome = self._gone.pop()
            queue = engine.leave(consumer, len(entries))
            if not queue.is_stream or outcome is Outcome.ACCEPTED:
                count_left(queue, outcome, len(entries))
            if not queue.is_stream:
                release(engine.log, entries)
                if queue.marks:
                    queue.unmark([entry.position for entry in entries])
            yield 1 + len(entries) // _SETTLED
        while self._back:
            consumer, entries, change = self._back.pop()
            give_back(engine, consumer, entries, change)
            yield 1 + len(entries) // 2
        if self._pause is not None:
            self._pause.end(engine.dirty)
        engine.holders.pop(self, None)
        for run, taken in self._runs:
            run.let_go(engine, taken)
            yield 1
        self._used.append(self._runs)
        self._runs = []
        for used in self._used:
            yield from _freed(used)

    # -- what returns

    def held(self) -> list[tuple[Consumer, list[Entry]]]:
        """Return the deliveries that have not returned yet."""
        return [(consumer, entries.copy()) for consumer, entries, _ in self._back]

    def copy_ahead(self, at: int, most: int) -> tuple[int, int]:
        """See `Holder.copy_ahead`. Nothing is copied in advance."""
        del at, most
        return 1, 0

    def held_part(self, start: int, most: int) -> list[tuple[Consumer, Entry]]:
        """Return at most `most` of them, from number `start` on."""
        return part_of(((consumer, entries) for consumer, entries, _ in self._back), start, most)


def _freed(used: list[Any]) -> Iterator[int]:
    """Free the memory of a list, and of the lists that its settlements consist of. Yield the cost of each piece."""
    while used:
        count = 0
        while used and count < PIECE:
            last = used[-1]
            if isinstance(last, Settlement) and len(last.entries) > PIECE:
                last.split(PIECE)
                count += PIECE
            else:
                used.pop()
                count += 1
        yield 1 + count // _FREED
