"""Publishing in the branches of distributed transactions."""

from __future__ import annotations

import secrets
from typing import Final

from escrowmq.perf.amqp091 import frames
from escrowmq.perf.block import PublishBlock
from escrowmq.perf.errors import PerfError
from escrowmq.perf.publisher import TransactingPublisher
from escrowmq.perf.totals import Totals
from escrowmq.perf.workload import TWO_PHASE

_ONE_PHASE_BIT: Final = 1


class BranchPublisher(TransactingPublisher):
    """Repeats: publish `size` messages in a branch, end it, prepare it, commit it, and wait for the answer.

    Requests that need no answer first are sent in one write: start, publishes, end and prepare (or the one-phase
    commit).
    """

    def __init__(
        self,
        channel: int,
        block: PublishBlock,
        totals: Totals,
        count: int | None,
        stamped: bool,
        size: int,
        phases: str,
    ) -> None:
        super().__init__(channel, block, totals, count, stamped, size, b"")
        self._two_phase = phases == TWO_PHASE
        self._global = secrets.token_bytes(8)
        self._branches = 0
        self._branch = b""
        self._prepared = False

    def room(self, now: int) -> int:
        return 1 if self._prepared else super().room(now)

    def take(self, now: int) -> memoryview | None:
        channel = self.channel
        if self._prepared:
            self._prepared = False
            return memoryview(frames.dtx(channel, frames.DTX_COMMIT, self._branch, 0))
        data = self.take_messages(now)
        if data is None:
            return None
        self._branches += 1
        branch = self._branch = frames.xid(self._global + self._branches.to_bytes(8, "big"))
        if self._two_phase:
            last = frames.dtx(channel, frames.DTX_PREPARE, branch)
        else:
            last = frames.dtx(channel, frames.DTX_COMMIT, branch, _ONE_PHASE_BIT)
        start = frames.dtx(channel, frames.DTX_START, branch, 0)
        return memoryview(b"".join((start, data, frames.dtx(channel, frames.DTX_END, branch, 0), last)))

    def on_branch_answer(self, answer: int, flags: int, now: int) -> bool:
        """Handle an answer of the dtx classes. Returns whether there may be something to send now."""
        if flags != frames.XA_OK:
            raise PerfError(f"the broker answered {flags} to method {answer:#x} on channel {self.channel}, not xa-ok")
        if answer == frames.DTX_PREPARE_OK:
            self._prepared = True
        elif answer == frames.DTX_COMMIT_OK:
            self.on_commit_ok(now)
        return answer in (frames.DTX_PREPARE_OK, frames.DTX_COMMIT_OK)
