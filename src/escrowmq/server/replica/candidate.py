"""Whether a standby claims the leadership: it watches the leader, looks at its own copy, and claims."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from escrowmq.replica.coverage import LackingPart
from escrowmq.replica.entries import TakeOverReason
from escrowmq.replica.standing import CopyComparison, Sign, Silence, StandbyStep, Standing, next_step
from escrowmq.server.replica.following import Following
from escrowmq.server.replica.node_view import NodeView
from escrowmq.server.replica.presence import GRACE_SECONDS, LeaderPresence

GIVE_WAY_SECONDS: Final = 1.0
"""How long a node that is short of disk space lets others claim first."""

_log = logging.getLogger("escrowmq.replication")


class Candidate:
    """The node at `url`, on the thread that follows the log."""

    def __init__(
        self,
        following: Following,
        view: NodeView,
        url: str,
        silence_seconds: float,
        is_short: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_short` returns whether the disk is so short of space that a leader here would block publishers."""
        self._following = following
        self._view = view
        self._url = url
        self._silence = Silence(_now_ms(), round(silence_seconds * 1000))
        self._standing = Standing(view.node, self._silence)
        self.presence = LeaderPresence()
        self._gone: tuple[float, int] | None = None
        """Since when the leader's process has ended and nothing has counted, and how much had counted then."""
        self.claimed = TakeOverReason.NONE, 0.0
        """Why this node claimed, and when no node served clients any more, by `time.monotonic()`."""
        self.refusal = ""
        """Why the log did not take this node's last claim; empty if it did, or if a leader may be there."""
        self._is_short = is_short
        self._wanted_at: float | None = None
        """Since when there has been a reason to look at the copy, by `time.monotonic()`."""
        self._lacking: LackingPart | None = None
        """What the operator was told that the copy lacks."""

    def heard(self) -> None:
        """Note that the leader may be there."""
        self.refusal = ""
        self._silence.heard(_now_ms())

    def found_loss(self) -> None:
        """Note that the log has lost entries that this node had read."""
        self._standing.found_loss = True

    @property
    def is_silent(self) -> bool:
        """Whether nothing of the leader has counted for the time of the lease."""
        return self._silence.lasts(_now_ms())

    @property
    def is_gone(self) -> bool:
        """Whether the leader's process has ended, as far as its machine says."""
        return self._gone is not None

    def look_for_leader(self) -> None:
        """Do not wait for the lease if the leader's process has ended, and nothing more of it comes."""
        tail, now = self._following.tail, time.monotonic()
        fold = tail.fold
        if fold.leader is not None and not fold.resigned and fold.leader.url != self._url:
            self.presence.watch(fold.leader.url, fold.leader.epoch)
        else:
            self.presence.watch("")
        if not self.presence.is_gone:
            self._gone = None
        elif self._gone is None or self._gone[1] != tail.counted:
            self._gone = now, tail.counted
        elif not fold.leaving or now - self._gone[0] >= GRACE_SECONDS:
            self._silence.end(_now_ms())

    def take_over(self) -> bool:
        """Do what the signs of the leader demand, and return whether this node leads now.

        Raises ReplicaError and OSError.
        """
        if not self._may_have_to_act():
            self._wanted_at = None
            return False
        if self._gives_way() or not self._is_whole():
            return False
        following, now_ms, standing = self._following, _now_ms(), self._standing
        fold, copy = following.tail.fold, following.copy
        copy.note_end()
        if not standing.found_loss:
            copy.drop_uncounted(fold.epoch)
        end = copy.end
        longer = end.lsn > fold.next_lsn
        sign = standing.sign(now_ms, resigned=fold.resigned, hole=fold.hole, notices=fold.notices, longer=longer)
        if sign is Sign.HEARD and fold.leader is None:
            sign = Sign.SILENT
        if sign is Sign.HEARD and not longer:
            standing.found_loss = False  # nothing that this node has is missing any more
        holding = CopyComparison.LONGER if longer else CopyComparison.EQUAL
        step = next_step(sign, holding, standing.notices(now_ms, fold.notices, end))
        if step is StandbyStep.NOTICE:
            _log.warning("this node has frames up to LSN %#x, and the replicated log up to %#x", end.lsn, fold.next_lsn)
            following.leader.give_notice(end)
        return step is StandbyStep.CLAIM and self._claim()

    def _may_have_to_act(self) -> bool:
        """Return whether there is a reason to look at the copy. A resignation from before the start may be this node's
        own, and is waited for like silence.
        """
        fold = self._following.tail.fold
        if fold.leader is None or fold.hole or fold.notices or self._standing.found_loss:
            return True
        return self.is_silent or (fold.resigned and self._view.watched)

    def _gives_way(self) -> bool:
        """Return whether a node with more space on its disk may claim first."""
        now = time.monotonic()
        self._wanted_at = self._wanted_at or now
        return now - self._wanted_at < GIVE_WAY_SECONDS and self._is_short()

    def _is_whole(self) -> bool:
        """Return whether a broker can start with the copy. A node whose copy is not whole waits for another one."""
        lacking = self._following.copy.lacking_part()
        if lacking is not None and lacking != self._lacking:
            _log.error(
                "this node cannot lead: its files lack %s, and neither it nor the replicated log has a snapshot that "
                "covers it. Start a node that has one, and this node follows it",
                lacking,
            )
        self._lacking = lacking
        return lacking is None

    def _claim(self) -> bool:
        """Claim, unless a leader was there meanwhile, and return whether this node leads now.

        A process that was stopped before this call may have missed that the leader is there.
        """
        following, view = self._following, self._view
        if following.read_to_end():
            self.heard()
            return False
        self.claimed = self._reason(), view.heard_at or time.monotonic()
        _log.info("no node leads: this one claims to lead")
        leads = following.leader.take_over(following.copy.greatest_epoch, following.tail.counted)
        view.note(following.tail.fold)
        if not leads:
            self.heard()
            self.refusal = following.leader.refusal
        return leads

    def _reason(self) -> TakeOverReason:
        fold, found_loss = self._following.tail.fold, self._standing.found_loss
        if fold.leader is None and not self._following.copy.greatest_epoch and not found_loss:
            return TakeOverReason.FIRST  # its notices say that it brings a journal along
        if fold.hole or fold.notices or found_loss:
            return TakeOverReason.LOSS
        if fold.leader is None:
            return TakeOverReason.FIRST
        if fold.resigned:
            return TakeOverReason.RESIGNED
        return TakeOverReason.ENDED if self.presence.is_gone else TakeOverReason.SILENT


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
