"""What a node knows about itself, the leader, and the nodes that led before."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from escrowmq.replica.fold import Fold
from escrowmq.server.replica.places import TakeOver

_TAKE_OVERS: Final = 100

_log = logging.getLogger("escrowmq.replication")


@dataclass(slots=True)
class NodeView:
    """One thread writes it; others read it."""

    node: str
    role: str = "standby"
    epoch: int = 0
    leader: str = ""
    leader_url: str = ""
    fault: str = ""
    """Why this node can neither follow the log nor lead; empty if it can."""
    began_at: float = field(default_factory=time.monotonic)
    followed_at: float = 0.0
    """When this node last had read the log to its end, by `time.monotonic()`; 0 before the first time."""
    heard_at: float = 0.0
    """When the last entry of the leader was read."""
    watched: bool = False
    """Whether this process has seen a leader that had not resigned. Another resignation may be its own."""
    on_diverged: Callable[[], None] = lambda: None
    """Called before frames are cut off that had counted, because the log has lost them."""
    take_overs: deque[TakeOver] = field(default_factory=lambda: deque(maxlen=_TAKE_OVERS))

    def note(self, fold: Fold) -> None:
        """Note who leads."""
        self.watched |= fold.leader is not None and not fold.resigned
        if fold.leader is None or fold.epoch == self.epoch:
            return
        for each in fold.leaders:
            last = self.take_overs[-1] if self.take_overs else None
            if last is None or each.epoch > last.epoch:  # else it was known before this process began
                before = last.node if last is not None else ""
                self.take_overs.append(TakeOver(*each, time.time(), before))
        self.epoch, self.leader, self.leader_url = fold.epoch, fold.leader.node, fold.leader.url
        _log.info("node %s leads since epoch %d: %s", self.leader, fold.epoch, self.leader_url)

    def reported_take_overs(self, fold: Fold) -> list[TakeOver]:
        """Return the take-overs with what their nodes have reported. May be called on any thread."""
        found = []
        for each in list(self.take_overs):
            report = fold.take_overs.get(each.epoch)
            if report is not None and report.node == each.node:
                reason = report.reason.name.lower()
                each = each._replace(seen=report.time_ms / 1000, reason=reason, seconds=report.took_ms / 1000)
            found.append(each)
        return found
