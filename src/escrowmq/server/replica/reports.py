"""A standby's reports in the replicated log. They show operators on other nodes how far it follows."""

from __future__ import annotations

import contextlib
import time

from escrowmq.replica.errors import AppendUnknown
from escrowmq.server.replica.following import Following
from escrowmq.server.replica.shipper import REPORT_SECONDS


class Reports:
    """Appends a report now and then while another node leads."""

    def __init__(self, following: Following) -> None:
        self._following = following
        self._due_at = 0.0

    def give(self, *, silent: bool) -> None:
        """Report if it is time to, unless nobody leads or the leader is `silent`. Raises ReplicaError and OSError."""
        fold, now = self._following.tail.fold, time.monotonic()
        if now < self._due_at or fold.leader is None or fold.resigned or silent:
            return
        self._due_at = now + REPORT_SECONDS
        with contextlib.suppress(AppendUnknown):
            self._following.leader.report(self._following.copy.end_lsn, round(time.time() * 1000))
