"""Branches in doubt in a snapshot: copied one by one, with turns in between, and encoded later, on any thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final

from escrowmq.core.branches.branch import Settlement, State
from escrowmq.core.branches.preparation import head_of, items_of, lasting, owner_item, reservation_items
from escrowmq.core.branches.registry import IN_DOUBT
from escrowmq.core.records.branches import ADDRESS, Item, encode_prepare, run_head
from escrowmq.core.records.kinds import Kind

if TYPE_CHECKING:
    from escrowmq.core.branches.xa_branch import XaBranch
    from escrowmq.core.branches.xid import Xid
    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.queues.consumer import Consumer

_COPIED: Final = 30  # copied runs or deliveries that cost as much as a look at a branch
_BRANCH: Final = 20  # looks that cost as much as the copy of a branch without work

Payload = tuple[Item, Sequence[bytes]]


class CapturedBranch:
    """A copy of a branch in doubt. Of a decided one, only the decision is needed: after a restart, its locked messages
    are back in their queues. `held` has the deliveries that a prepared branch holds. `cost` is that of the copy, in
    looks at a branch.
    """

    __slots__ = ("_branch", "_head", "_more", "_reserved", "_runs", "_settlements", "_state", "_unread", "cost", "held")

    def __init__(self, branch: XaBranch) -> None:
        self._branch = branch
        self._state = branch.state
        self._head = head_of(branch, branch.state, branch.prepared_at)
        self._unread = branch.unread
        self._runs = list(branch.runs)
        self._settlements: list[Settlement] = []
        self._reserved = list(reservation_items(branch))
        self._more: tuple[Sequence[tuple[int, Payload]], Sequence[tuple[int, list[Payload]]]] = ((), ())
        self.held: list[tuple[Consumer, list[Entry]]] = []
        self.cost = _BRANCH + len(self._runs) // _COPIED
        if branch.state is State.PREPARED:
            for each in branch.settlements:
                copy = Settlement(each.consumer, each.entries.copy(), each.disposition, routes=each.routes)
                self._settlements.append(copy)
                self.held.append((copy.consumer, copy.entries))
                self.cost += 1 + len(copy.entries) // _COPIED
            if branch.unread is not None:
                self._more = branch.unread.run_items(), branch.unread.settlement_items()

    @property
    def current(self) -> bool:
        """Whether the branch has not changed since. Its work does not while it is prepared."""
        branch = self._branch
        same = branch.state is self._state and branch.unread is self._unread
        return same and branch.timeout == self._head.timeout

    def record(self) -> tuple[Kind, list[bytes]]:
        """Return the record of the branch. It holds the addresses of its blocks."""
        items: list[Payload] = [owner_item(self._branch)]
        if self._state is State.PREPARED:
            items += self._work()
        return Kind.PREPARE, encode_prepare(self._head, items)[0]

    def _work(self) -> list[Payload]:
        runs: list[Payload | None] = []
        for run in self._runs:
            head = run_head([queue.ident for queue in lasting(run)], mandatory=run.mandatory)
            address = ADDRESS.pack(run.lsn, len(run.contents))
            runs.append((Item.ADDRESSED_RUN, [head, address]) if run.lsn else None)
        settlements = [list(items_of(settlement)) for settlement in self._settlements]
        unread_runs, unread_settlements = self._more
        for index, run_item in unread_runs:
            runs.insert(index, run_item)
        for index, some in unread_settlements:
            settlements.insert(index, some)
        found = [item for item in runs if item is not None]
        found += chain.from_iterable(settlements)
        return found + self._reserved


class BranchCaptures:
    """Copies of the branches in doubt of a broker."""

    def __init__(self, branches: Mapping[Xid, XaBranch]) -> None:
        self._branches = branches
        self._taken: dict[XaBranch, CapturedBranch] = {}

    def outdated(self) -> list[XaBranch]:
        """Return the branches in doubt of which there is no copy, or one from before a change. It takes a step for each
        branch.
        """
        taken = self._taken
        return [
            branch
            for branch in self._branches.values()
            if branch.state in IN_DOUBT and ((copy := taken.get(branch)) is None or not copy.current)
        ]

    def take(self, branch: XaBranch) -> int:
        """Copy a branch, if it is still in doubt. Return the cost."""
        if branch.state not in IN_DOUBT:
            return 1
        captured = self._taken[branch] = CapturedBranch(branch)
        return captured.cost

    def finish(self) -> dict[XaBranch, CapturedBranch]:
        """Return the copies of all branches in doubt, in order. The caller has made sure that none is outdated."""
        return {branch: self._taken[branch] for branch in self._branches.values() if branch.state in IN_DOUBT}
