"""The commit of a large branch in one phase: one record, but prepared and applied in pieces with turns in between.

1. `gather` encodes the record but for the positions of the messages. Nothing changes, so the commit can be given up.
2. `write` is one step: it assigns the positions, appends the record, and seals the queues. From then on the branch is
   committed.
3. `complete` makes the messages ready behind the seal and settles the deliveries. At its end all messages become
   visible at once, if the record is synced; otherwise they do with the sync.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from escrowmq.core.branches import resolution
from escrowmq.core.branches.branch import CommitResult, Input, Publication, Settlement
from escrowmq.core.branches.decision import check_totals, too_long
from escrowmq.core.branches.resolution import divided, give_back
from escrowmq.core.messages.entry import Run
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.queues.sealed import SealedRuns
from escrowmq.core.queues.settlement import durable_positions, release
from escrowmq.core.records import kinds as records
from escrowmq.core.records.blocks import encode_block
from escrowmq.core.records.drafts import Draft
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.references import ranges_of
from escrowmq.core.records.settling import encode_settle

if TYPE_CHECKING:
    from escrowmq.core.branches.branch import TransactionBranch
    from escrowmq.core.budget import Budget
    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.messages.envelope import Envelope
    from escrowmq.core.messages.marks import Modification
    from escrowmq.core.ports import Holder
    from escrowmq.core.queues.consumer import Consumer
    from escrowmq.core.queues.discipline import Pager
    from escrowmq.core.queues.outcome import Disposition
    from escrowmq.core.queues.queue import Queue

PIECE: Final = 500
"""Deliveries that are settled in one step."""
_ALIKE: Final = 20  # messages of a run that cost one unit of the budget
_SETTLED: Final = 8  # deliveries that do
_MADE: Final = 6  # entries that do
_FREED: Final = 5000  # objects that are freed in one step


class Host(resolution.Host, Protocol):
    """The part of the engine that a large commit needs."""

    pager: Pager
    requests: Budget
    holders: dict[Holder, None]

    def synced(self, lsn: int) -> None:
        """Note that the log is synced up to `lsn`. Commits below it become visible."""
        ...


class LargeCommit:
    """One commit. After `write`, `result` is its result, and `complete` must be carried through to its end.

    It holds the deliveries that return to their queues until they do (`core.ports.Holder`).
    """

    def __init__(self, engine: Host, branch: TransactionBranch) -> None:
        self._engine = engine
        self._branch = branch
        self.result = CommitResult()
        self._begin()

    def _begin(self) -> None:
        self._time = self._engine.now
        self._draft = Draft()
        self._sealed: dict[Queue, SealedRuns] = {}
        self._wanted: dict[Queue, list[int]] = {}  # messages and bytes published to queues that may refuse them
        self._retained = 0
        self._bereft = False
        self._returned: list[Publication] = []
        self._gone: list[tuple[Consumer, list[Entry]]] = []
        self._back: list[tuple[Consumer, list[Entry], Modification | Disposition]] = []
        self._used: list[list[Publication] | list[Settlement]] = []

    # -- the first phase

    def gather(self) -> Iterator[None]:
        """Encode the record, and yield whenever the turn's budget is used up. Raises LIMIT_EXCEEDED, as does `write`,
        if the effects do not fit into one record or a queue that refuses messages at its limit is full.
        """
        requests = self._engine.requests
        while True:
            for cost in self._pieces():
                requests.left -= cost
                if requests.left <= 0:
                    yield
            if self._draft.size > records.RECORD_BYTES:
                raise too_long(self._draft.size)
            if not any(queue.deleted for queue in self._sealed):
                return
            self._begin()  # without the queues that were deleted meanwhile

    def _pieces(self) -> Iterator[int]:
        """Gather the effects. Yield the cost of each piece."""
        for publication in self._branch.publications:
            yield self._publish(publication)
        for settlement in self._branch.settlements:
            entries = settlement.entries
            for begin in range(0, len(entries), PIECE):
                yield self._settle(settlement, entries[begin : begin + PIECE])

    def _publish(self, publication: Publication) -> int:
        queues = publication.queues
        if any(queue.deleted for queue in queues):
            self._bereft = True
            queues = tuple(queue for queue in queues if not queue.deleted)
        contents = publication.contents
        if queues:
            for queue in queues:
                if queue.refuses:
                    total = self._wanted.setdefault(queue, [0, 0])
                    total[0] += len(contents)
                    total[1] += sum(map(len, contents))
            self.place(publication.envelope, contents, queues)
        elif publication.mandatory:
            self._returned.append(publication)
        return 1 + len(queues) + len(contents) // _ALIKE

    def place(self, envelope: Envelope, contents: Sequence[bytes], queues: Sequence[Queue]) -> None:
        """Add a run to `queues`, after the runs placed earlier."""
        if not envelope.durable and any(queue.persists_all for queue in queues):
            envelope = envelope.lasting()
        some = contents if isinstance(contents, list) else list(contents)
        targets, offset = [], 0
        for queue in queues:
            sealed = self._sealed.get(queue)
            if sealed is None:
                sealed = self._sealed[queue] = SealedRuns()
            if queue.durable and envelope.durable:
                targets.append((queue.ident, sealed.count))
        if targets:
            block = encode_block(self._time, envelope, some)
            offset = self._draft.publish(targets, block, timeless=any(queue.is_stream for queue in queues))
            self._retained += len(some) * len(targets)
        for queue in queues:
            self._sealed[queue].add(Run(envelope, 0, self._time, offset if queue.durable else 0), some)

    def _settle(self, settlement: Settlement, entries: list[Entry]) -> int:
        engine, consumer, queue = self._engine, settlement.consumer, settlement.consumer.queue
        outcome, entries, returning = divided(settlement, entries)
        if outcome is Outcome.DELIVERY_LIMIT:
            self._back.append((consumer, returning, settlement.modification or settlement.disposition))
            if not entries:
                return 1 + len(returning) // _SETTLED
        self._gone.append((consumer, entries))
        if queue.deleted:
            self._bereft = True
        elif not queue.is_stream:
            if outcome is not Outcome.ACCEPTED:
                engine.dead_letters.place(self, queue, entries, outcome)
            positions = durable_positions(queue, entries)
            if positions:
                self._draft.add(Kind.SETTLE, encode_settle(queue.ident, outcome, ranges_of(positions)))
        return 1 + (len(entries) // _SETTLED if outcome is Outcome.ACCEPTED else len(entries))

    # -- the second phase

    def write(self) -> None:
        """Write the record. `gather` must have ended in this turn, without an error."""
        engine, branch, draft = self._engine, self._branch, self._draft
        check_totals(self._wanted)
        engine.settlements.flush()
        record = end = 0
        if draft.operations:
            bases = {queue.ident: queue.next_position for queue in self._sealed}
            record = engine.log.append(Kind.COMMIT, *draft.finish(branch.number, bases, engine.now))
            if self._retained:
                engine.log.retain(record, self._retained)
            end = engine.log.end_lsn
        for queue, sealed in self._sealed.items():
            sealed.place(queue.next_position, record, engine.now)
            queue.enqueue_sealed(sealed, end)
            engine.seal(queue)
        engine.holders[self] = None
        for consumer, _, _ in self._back:
            consumer.queue.returning += 1
        branch.step(Input.COMMIT_ONE_PHASE)
        self._used = [branch.publications, branch.settlements]
        branch.publications, branch.settlements = [], []
        branch.end()
        self.result = CommitResult(engine.log.end_lsn if self._bereft else end, tuple(self._returned))

    # -- the third phase

    def complete(self) -> Iterator[None]:
        """Apply the commit, and yield whenever the turn's budget is used up."""
        requests = self._engine.requests
        for cost in self._rest():
            requests.left -= cost
            if requests.left <= 0:
                yield
        for sealed in self._sealed.values():
            sealed.ready = True
        self._sealed.clear()
        self._engine.synced(self._engine.log.synced_lsn)

    def _rest(self) -> Iterator[int]:
        engine = self._engine
        for queue, sealed in self._sealed.items():
            for count in sealed.make_ready(queue, engine.pager):
                yield 1 + count // _MADE
        for consumer, entries in self._gone:
            queue = engine.leave(consumer, len(entries))
            if not queue.is_stream:
                release(engine.log, entries)
                if queue.marks:
                    queue.unmark([entry.position for entry in entries])
            yield 1 + len(entries) // _SETTLED
        self._gone.clear()
        while self._back:
            consumer, entries, change = self._back.pop()
            consumer.queue.returning -= 1
            give_back(engine, consumer, entries, change)
            yield 1 + len(entries) // 2
        engine.holders.pop(self, None)
        for used in self._used:
            while used:
                del used[-_FREED:]
                yield _FREED // 100

    # -- what returns

    def held(self) -> list[tuple[Consumer, list[Entry]]]:
        """Return the deliveries that have not returned yet."""
        return [(consumer, entries.copy()) for consumer, entries, _ in self._back]

    def held_part(self, start: int, most: int) -> list[tuple[Consumer, Entry]]:
        """Return at most `most` of them, from number `start` on."""
        waiting = [(consumer, entry) for consumer, entries, _ in self._back for entry in entries]
        return waiting[start : start + most]
