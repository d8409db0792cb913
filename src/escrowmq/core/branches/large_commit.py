"""The commit of a large branch in one phase: one record, but prepared and applied in pieces with turns in between.

1. `gather` encodes the record but for the positions of the messages. Nothing changes, so the commit can be given up.
2. `write` is one step: it assigns the positions, appends the record, and seals the queues. From then on the branch is
   committed.
3. `complete` makes the messages ready behind the seal and settles the deliveries. At its end all messages become
   visible at once, if the record is synced; otherwise they do with the sync.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from escrowmq.core.branches.branch import CommitResult, Input
from escrowmq.core.branches.decision import too_long
from escrowmq.core.branches.large_effects import LargeEffects
from escrowmq.core.records import kinds as records
from escrowmq.core.records.drafts import Draft
from escrowmq.core.records.kinds import Kind

if TYPE_CHECKING:
    from escrowmq.core.branches.branch import TransactionBranch
    from escrowmq.core.branches.large_effects import Host

ARRIVED: Final = 50
"""Units of the budget that an operation with the tags of posts costs."""


class LargeCommit:
    """One commit. After `write`, `result` is its result, and `complete` must be carried through to its end."""

    def __init__(self, engine: Host, branch: TransactionBranch) -> None:
        self._engine = engine
        self._branch = branch
        self.result = CommitResult()
        self._begin()

    def _begin(self) -> None:
        self._draft = Draft()
        self._draft.begin(self._branch.number)
        self._posts = self._branch.posts
        self._effects = LargeEffects(self._engine, self._draft)

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
            if not self._effects.outdated and self._posts == self._branch.posts:
                return
            self._begin()  # without the queues that were deleted, and the tags that were settled meanwhile

    def _pieces(self) -> Iterator[int]:
        """Gather the effects. Yield the cost of each piece."""
        for publication in self._branch.publications:
            yield from self._effects.publish(publication)
        for settlement in self._branch.settlements:
            entries = settlement.entries
            begin = 0
            while begin < len(entries):
                end = self._effects.end_of_piece(settlement, begin)
                yield self._effects.settle(settlement, entries[begin:end])
                begin = end
        for posts in self._branch.arrivals:
            for kind, payload in posts.operations_in_pieces():
                self._draft.add(kind, b"".join(payload))
                yield ARRIVED
        if not self._effects.outdated and self._draft.size <= records.RECORD_BYTES:
            yield from self._effects.fill()

    def write(self) -> None:
        """Write the record. `gather` must have ended in this turn, without an error."""
        engine, branch, draft, effects = self._engine, self._branch, self._draft, self._effects
        effects.check_room()
        engine.settlements.flush()
        record = end = 0
        if draft.operations:
            record = engine.log.append(Kind.COMMIT, *effects.finish())
            end = engine.log.end_lsn
        effects.apply(record, end, [branch.publications, branch.settlements])
        for posts in branch.arrivals:
            posts.apply(end, engine.log.synced_lsn)
        branch.step(Input.COMMIT_ONE_PHASE)
        branch.publications, branch.settlements = [], []
        branch.end()
        self.result = CommitResult(engine.log.end_lsn if effects.bereft else end, tuple(effects.returned))

    def complete(self) -> Iterator[None]:
        """Apply the commit, and yield whenever the turn's budget is used up."""
        return self._effects.complete()
