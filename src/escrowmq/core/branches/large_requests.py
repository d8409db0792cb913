"""Requests about XA branches with much work, or about many branches: carried out in pieces, with turns in between.

Each request is a generator that returns the request's result. It yields whenever the turn's budget is used up, and
`WAIT` where it can only go on in a later turn. Until its record is written, nothing has changed, and it can be given
up. If a branch has changed meanwhile, the request begins again, so that it does what it would have done in one piece at
that moment. After that the engine carries it through, whether its client waits or not. Small requests are carried out
in one piece by the coordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from escrowmq.core.branches.branch import Input, State, step_each
from escrowmq.core.branches.coordinator import HEURISTIC, Coordinator, Division
from escrowmq.core.branches.large_commit import LargeCommit
from escrowmq.core.branches.large_outcome import LargeOutcome
from escrowmq.core.branches.large_preparation import LargePreparation
from escrowmq.core.branches.preparation import discard
from escrowmq.core.branches.registry import OVER
from escrowmq.core.branches.xa import XaResult, XaStatus
from escrowmq.core.conditions import BrokerError
from escrowmq.core.leftover import WAIT, freed
from escrowmq.core.records.branches import FORCED, encode_decide_head
from escrowmq.core.records.kinds import Kind

if TYPE_CHECKING:
    from escrowmq.core.branches.coordinator import Host
    from escrowmq.core.branches.registry import Registry
    from escrowmq.core.branches.transactions import Transactions
    from escrowmq.core.branches.xa_branch import XaBranch
    from escrowmq.core.branches.xid import Xid

Request = Generator[bool | None, None, XaResult]

FEW: Final = 100
"""Branches of one global transaction up to which they are decided in one piece."""
_SEEN: Final = 50  # branches looked at that cost one unit of the budget
_DIVIDED: Final = 10  # branches of which a third of the division into winners and losers costs one unit
_FREED: Final = 1000  # branches that are freed in one step
_DROPPED: Final = 3  # units that the end of a decided branch costs

_state = attrgetter("state")


class LargeRequests:
    """Requests of transaction managers that may take many turns."""

    def __init__(self, engine: Host, registry: Registry, transactions: Transactions, coordinator: Coordinator) -> None:
        self._engine = engine
        self._registry = registry
        self._transactions = transactions
        self._coordinator = coordinator
        self.few = FEW

    def _large(self, branch: XaBranch) -> bool:
        """Return whether the branch has much work."""
        left = self._transactions.large - len(branch.publications) - len(branch.runs)
        if left >= 0:  # otherwise there may be very many
            left -= sum([len(work.queues) - 1 for work in branch.publications])
            left -= sum([len(run.queues) - 1 for run in branch.runs])
        for settlement in branch.settlements:
            if left < 0:
                break
            left -= 1 + len(settlement.entries)
        return left < 0

    # -- one branch

    def prepare(self, xid: Xid) -> Request:
        """Do `Coordinator.prepare`."""
        while True:
            branch = self._coordinator.ended(xid)
            if branch.state is not State.ACTIVE or not self._large(branch):
                return self._coordinator.prepare(xid)
            work = LargePreparation(self._engine, branch)
            if not (yield from self._gathered(work.gather(), branch)):
                continue
            try:
                self._registry.check_prepare(branch)
                work.check()
            except BrokerError as full:
                return self._coordinator.refuse(branch, Input.PREPARE, full)
            branch.lsn = work.write()
            branch.step(Input.PREPARE)
            self._registry.prepared(branch, work.kept_bytes)
            yield from self._carried(work.complete())
            return XaResult(XaStatus.OK, branch.lsn)

    def commit(self, xid: Xid, *, one_phase: bool) -> Request:
        """Do `Coordinator.commit`."""
        while True:
            branch = self._coordinator.ended(xid)
            usual = State.ACTIVE if one_phase else State.PREPARED
            if branch.state is not usual or not self._large(branch) or (one_phase and branch.reservations):
                return self._coordinator.commit(xid, one_phase=one_phase)
            if one_phase:
                result = yield from self._commit_one_phase(branch)
            else:
                result = yield from self._commit(branch)
            if result is not None:
                return result

    def _commit_one_phase(self, branch: XaBranch) -> Generator[bool | None, None, XaResult | None]:
        work = LargeCommit(self._engine, branch)
        try:
            if not (yield from self._gathered(work.gather(), branch)):
                return None
            work.write()
        except BrokerError as full:  # nothing was applied
            return self._coordinator.refuse(branch, Input.COMMIT_ONE_PHASE, full)
        self._registry.over(branch)
        yield from self._carried(work.complete())
        return XaResult(XaStatus.OK, work.result.lsn, work.result.returned)

    def _commit(self, branch: XaBranch) -> Generator[bool | None, None, XaResult | None]:
        """Commit a prepared branch with a record of its own. Return None if it has changed."""
        work = LargeOutcome(self._engine, [branch], 0)
        if not (yield from self._gathered(work.gather(), branch)):
            return None
        lsn = work.write(Kind.COMMIT, b"")
        branch.step(Input.COMMIT)
        discard(self._engine, branch)
        self._registry.over(branch)
        yield from self._carried(work.complete())
        return XaResult(XaStatus.OK, lsn, work.returned)

    def force(self, xid: Xid, *, commit: bool) -> Request:
        """Do `Coordinator.force`."""
        while True:
            branch = self._registry.find(xid)
            if not commit or branch.state is not State.PREPARED or not self._large(branch):
                return self._coordinator.force(xid, commit=commit)
            work = LargeOutcome(self._engine, [branch], len(FORCED))
            if not (yield from self._gathered(work.gather(), branch)):
                continue
            branch.lsn = work.write(Kind.HEURISTIC, FORCED)
            branch.step(Input.FORCE_COMMIT)
            discard(self._engine, branch)
            self._registry.let_go(branch)
            yield from self._carried(work.complete())
            return XaResult(HEURISTIC[branch.state], branch.lsn, work.returned)

    def _gathered(self, pieces: Iterator[None], branch: XaBranch) -> Generator[bool | None, None, bool]:
        """Gather the effects of a branch. Return False if it has changed meanwhile."""
        before = (branch.state, branch.operations)
        for _ in pieces:
            yield None
            if self._registry.by_xid.get(branch.xid) is not branch or branch.occupied:
                return False
            if (branch.state, branch.operations) != before:
                return False
        return True

    def _carried(self, rest: Iterator[None]) -> Generator[bool | None, None, None]:
        """Have the engine do the rest, and wait for its end."""
        done: list[bool] = []

        def whole() -> Iterator[None]:
            yield from rest
            done.append(True)

        self._engine.left_over.add(whole())
        while not done:
            yield WAIT

    # -- many branches

    def decide(
        self,
        gtrid: bytes,
        format_id: int,
        winners: Sequence[bytes],
        *,
        application: str,
        epoch: int,
        user: str = "",
        permitted: Callable[[XaBranch], bool] | None = None,
    ) -> Request:
        """Do `Coordinator.decide`."""
        coordinator, progress, engine = self._coordinator, self._coordinator.progress, self._engine
        while True:
            known = yield from self._known(gtrid, format_id, permitted)
            if len(known) <= self.few and not any(map(self._large, known)):
                mine = set(known)
                return coordinator.decide(
                    gtrid,
                    format_id,
                    winners,
                    application=application,
                    epoch=epoch,
                    user=user,
                    permitted=mine.__contains__,
                )
            plan = coordinator.plan(known, application)
            try:
                yield from self._divided(plan, gtrid, winners, epoch)
            except BrokerError:
                if self._holds(plan, gtrid, format_id, permitted, application):
                    raise
                continue  # the reason may be another one now
            chosen, losers, done, lsn = plan.chosen, plan.losers, plan.done, plan.lsn
            prepared = [branch.number for branch in losers if branch.state is State.PREPARED]
            if epoch <= done and not prepared:
                if not self._holds(plan, gtrid, format_id, permitted, application):
                    continue
                dropped = self._rolled_back(losers)
                yield from self._carried(self._dropped(dropped, lsn))
                self._free(known, plan, dropped)
                return XaResult(XaStatus.OK, lsn)
            head = encode_decide_head(application, max(epoch, done), prepared, len(chosen))
            work = LargeOutcome(engine, chosen, len(head))
            for _ in work.gather():
                yield None
            if len(known) > self.few:
                yield from self._next_turn()  # the record of very many branches gets a turn of its own
            if work.outdated or not self._holds(plan, gtrid, format_id, permitted, application):
                continue
            coordinator.claim(application, user)
            lsn = work.write(Kind.DECIDE, head)
            if application:
                progress.reached(application, max(epoch, done), lsn)
            step_each(chosen, State.PREPARED, Input.COMMIT)
            dropped = self._rolled_back(losers)
            if len(known) > self.few:
                engine.requests.left = 0  # the record is enough for this turn
            yield from self._carried(self._decided(work, chosen, dropped, lsn))
            self._free(known, plan, dropped)
            return XaResult(XaStatus.OK, lsn, work.returned)

    def _divided(
        self, plan: Division, gtrid: bytes, winners: Sequence[bytes], epoch: int
    ) -> Generator[bool | None, None, None]:
        """Divide the branches of a plan in pieces. Raises as `Division.divide`."""
        requests = self._engine.requests
        for count in plan.divide(gtrid, winners, epoch):
            requests.left -= 1 + count // _DIVIDED
            if requests.left <= 0:
                yield None

    def _free(self, known: list[XaBranch], plan: Division, dropped: list[tuple[XaBranch, State]]) -> None:
        """Free the memory of branches that are decided, in pieces. These lists hold the last references to them."""
        plan.states.clear()
        plan.chosen.clear()
        plan.losers.clear()
        dropped.clear()
        self._engine.left_over.add(freed(known, _FREED))

    def _next_turn(self) -> Iterator[None]:
        """Wait for the next turn."""
        self._engine.requests.left = 0
        yield None

    def _known(
        self, gtrid: bytes, format_id: int, permitted: Callable[[XaBranch], bool] | None
    ) -> Generator[bool | None, None, list[XaBranch]]:
        """Return the branches of a global transaction that are `permitted`."""
        requests = self._engine.requests
        verdicts: dict[XaBranch, bool] = {}
        while True:
            requests.left -= len(self._registry.by_xid) // _SEEN
            found = self._registry.of_global(gtrid, format_id)
            new = [branch for branch in found if branch not in verdicts]
            if not new:
                return [branch for branch in found if verdicts[branch]]
            for branch in new:
                verdicts[branch] = permitted is None or permitted(branch)
                requests.left -= 1
                if requests.left <= 0:
                    yield None

    def _holds(
        self,
        plan: Division,
        gtrid: bytes,
        format_id: int,
        permitted: Callable[[XaBranch], bool] | None,
        application: str,
    ) -> bool:
        """Return whether nothing has changed since the plan was made."""
        if self._coordinator.decided(application) != plan.done:
            return False
        found = self._registry.of_global(gtrid, format_id)
        states = plan.states
        new = [] if found == [*states] else [branch for branch in found if branch not in states]
        if new and (permitted is None or any(map(permitted, new))):
            return False
        if len(found) - len(new) != len(plan.states):
            return False
        return [*map(_state, plan.states)] == [*plan.states.values()]

    def _rolled_back(self, losers: Sequence[XaBranch]) -> list[tuple[XaBranch, State]]:
        """Let the losers take their step. Return those that end, with their former states."""
        prepared = [branch for branch in losers if branch.state is State.PREPARED]
        step_each(prepared, State.PREPARED, Input.ROLLBACK)
        found = [(branch, State.PREPARED) for branch in prepared]
        for branch in losers:
            if branch.state in OVER:
                continue
            if branch.occupied:
                self._registry.fail(branch)
                continue
            found.append((branch, branch.state))
            branch.step(Input.ROLLBACK)
            self._registry.disarm(branch)
        return found

    def _decided(
        self, work: LargeOutcome, chosen: Sequence[XaBranch], dropped: list[tuple[XaBranch, State]], lsn: int
    ) -> Iterator[None]:
        requests = self._engine.requests
        yield from work.complete()
        for branch in chosen:
            discard(self._engine, branch)
            self._registry.over(branch)
            requests.left -= _DROPPED
            if requests.left <= 0:
                yield
        yield from self._dropped(dropped, lsn)

    def _dropped(self, dropped: list[tuple[XaBranch, State]], lsn: int) -> Iterator[None]:
        requests = self._engine.requests
        for branch, before in dropped:
            self._coordinator.end_rolled_back(branch, before, lsn)
            requests.left -= _DROPPED
            if requests.left <= 0:
                yield
        self._coordinator.synced(self._engine.log.synced_lsn)  # the record may be on disk already
