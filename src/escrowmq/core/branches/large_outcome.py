"""The commit of prepared branches with much work: one record for all of them, as `large_commit` does it for one.

It is one step between `gather` and `complete` that decides: `write`. The caller makes sure that the branches are the
same then as they were when they were gathered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from escrowmq.core.branches.branch import State
from escrowmq.core.branches.large_effects import LargeEffects
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.records import kinds as records
from escrowmq.core.records.drafts import Draft
from escrowmq.core.records.unreadable import LogUnreadable

if TYPE_CHECKING:
    from escrowmq.core.branches.branch import Publication
    from escrowmq.core.branches.preparation import Host
    from escrowmq.core.branches.xa_branch import XaBranch
    from escrowmq.core.records.kinds import Kind
    from escrowmq.core.reservations.reservation import Reservation


class LargeOutcome:
    """One commit of prepared branches. After `write`, `complete` must be carried through to its end."""

    def __init__(self, engine: Host, branches: Sequence[XaBranch], prefix: int) -> None:
        """`prefix` is the number of bytes in the record before the commit of the first branch."""
        self._engine = engine
        self._branches = branches
        self._prefix = prefix
        self._begin()

    def _begin(self) -> None:
        engine = self._engine
        together = sum([engine.outcomes.get(gtrid, 0) for gtrid in {branch.xid.gtrid for branch in self._branches}])
        self._draft = Draft(self._prefix)
        self._effects = LargeEffects(engine, self._draft, max(records.RECORD_BYTES - together - self._prefix, 0))

    def gather(self) -> Iterator[None]:
        """Encode the record, and yield whenever the turn's budget is used up. Raises UNAVAILABLE if content that is
        needed cannot be read.
        """
        requests = self._engine.requests
        while True:
            try:
                for cost in self._pieces():
                    requests.left -= cost
                    if requests.left <= 0:
                        yield
            except LogUnreadable as error:
                raise BrokerError(Condition.UNAVAILABLE, f"the transaction stays prepared for now: {error}") from error
            if not self._effects.outdated:
                return
            self._begin()

    def _pieces(self) -> Iterator[int]:
        for branch in self._branches:
            if branch.unread is not None:
                branch.unread.read()
            if not branch.reservations:  # reservations may change until the record is written
                yield from self._of(branch)
        if not self._effects.outdated:
            yield from self._effects.fill()

    def _of(self, branch: XaBranch) -> Iterator[int]:
        self._draft.begin(branch.number)
        effects = self._effects
        yield 1
        for run in branch.runs:
            if branch.state is not State.PREPARED:
                return  # the caller will find that out
            yield from effects.place_prepared(run)
        for settlement in branch.settlements:
            entries = settlement.entries
            begin = 0
            while begin < len(entries):
                end = effects.end_of_piece(settlement, begin)
                yield effects.settle(settlement, entries[begin:end])
                begin = end

    @property
    def outdated(self) -> bool:
        """Whether a queue was deleted that had got messages, so that all must be gathered again."""
        return self._effects.outdated

    def write(self, kind: Kind, prefix: bytes) -> int:
        """Write the record and return the LSN at which it ends. `gather` must have ended, and not be outdated."""
        engine, draft, effects = self._engine, self._draft, self._effects
        engine.settlements.flush()
        reserving = [branch for branch in self._branches if branch.reservations]
        settled: dict[Reservation, int] = {}
        for branch in reserving:
            for _ in self._of(branch):
                pass
            for work in branch.reservations:
                for operation, parts in work.operations(settled):
                    draft.add(operation, b"".join(parts))
                effects.bereft = effects.bereft or work.reservation.queue.deleted
        record = engine.log.append(kind, prefix, *effects.finish())
        used: list[list[Any]] = []
        for branch in self._branches:
            used.append(branch.runs)
            branch.runs = []
            if branch.settlements:
                used.append(branch.settlements)
                branch.settlements = []
        effects.apply(record, engine.log.end_lsn, used)
        for branch in reserving:
            for work in branch.reservations:
                work.apply(engine.log)
        return engine.log.end_lsn

    @property
    def returned(self) -> tuple[Publication, ...]:
        """Return the mandatory messages that have no queue left (TX-11)."""
        return tuple(self._effects.returned)

    def complete(self) -> Iterator[None]:
        """Apply the commit, and yield whenever the turn's budget is used up."""
        return self._effects.complete()
