"""What `escrowmq replica status` and the HTTP interface show of the nodes, the engine and the take-overs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from escrowmq.replica.engines.watch import EngineView
from escrowmq.replica.fold import Fold, SeenReport
from escrowmq.server.replica.follower import Follower
from escrowmq.server.replica.shipper import REPORT_SECONDS

REASONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "none": "",
        "first": "as nobody had led before",
        "resigned": "which had handed over or was stopped",
        "ended": "whose process had ended",
        "silent": "which had given no sign for the time of the lease",
        "loss": "as the log had lost entries",
    }
)
"""Why a node took over, for people."""
LATE_SECONDS: Final = 2 * REPORT_SECONDS
"""A node whose last report is older is behind for that long."""


class Unreached(NamedTuple):
    """A node that has not reached the log's engine since its start, `began` by `time.monotonic()`."""

    node: str
    url: str
    began: float
    fault: str = ""

    def described(self) -> dict[str, Any]:
        """Return the same as the function of this name, as far as it is known."""
        own = {
            "node": self.node,
            "url": self.url,
            "role": "standby",
            "lsn": 0,
            "behind_bytes": 0,
            "behind_seconds": round(time.monotonic() - self.began, 1),
            "reported_seconds": 0.0,
        }
        return {
            "node": self.node,
            "role": "standby",
            "reading": True,
            "epoch": 0,
            "leader": "",
            "leader_url": "",
            "lsn": 0,
            "position": 0,
            "fault": self.fault,
            "nodes": [own],
            "engine": _engine_row(EngineView(fault=self.fault)),
            "take_overs": [],
        }


def described(follower: Follower, engine: EngineView) -> dict[str, Any]:
    """Return the standing of a node, and what it knows of the others, for JSON. May be called on any thread."""
    view = follower.view
    own = _own_row(follower)
    return {
        "node": view.node,
        "role": view.role,
        "reading": view.role == "standby" and not view.followed_at,
        "epoch": view.epoch,
        "leader": view.leader,
        "leader_url": view.leader_url,
        "lsn": own["lsn"],
        "position": follower.tail.position,
        "fault": view.fault,
        "nodes": [own, *_other_rows(follower)],
        "engine": _engine_row(engine),
        "take_overs": [{**each._asdict(), "why": REASONS.get(each.reason, "")} for each in follower.take_overs()],
    }


def _own_row(follower: Follower) -> dict[str, Any]:
    view, tail = follower.view, follower.tail
    leads = view.role == "leader"
    late = 0.0 if leads else time.monotonic() - (view.followed_at or view.began_at)
    return {
        "node": view.node,
        "url": follower.url,
        "role": view.role,
        "lsn": follower.copy.end_lsn,
        "behind_bytes": max(tail.fold.next_lsn - follower.copy.end_lsn, 0),
        "behind_seconds": round(late, 1) if late > 1 else 0.0,
        "reported_seconds": 0.0,
    }


def _other_rows(follower: Follower) -> list[dict[str, Any]]:
    """Return the rows of the leader, if it is another node, and of those that have reported."""
    fold, rows = follower.tail.fold, {}
    heard = follower.view.role == "leader" or time.monotonic() - follower.view.heard_at < LATE_SECONDS
    for key, seen in list(fold.reports.items()):
        age = _age(seen, fold, heard=heard)
        late = age > LATE_SECONDS
        rows[key] = {
            "node": seen.report.node,
            "url": seen.report.url,
            "role": "standby",
            "lsn": seen.report.lsn,
            # What the log got since a timely report is probably there already.
            "behind_bytes": max((fold.next_lsn if late else seen.end_lsn) - seen.report.lsn, 0),
            "behind_seconds": round(age, 1) if late else 0.0,
            "reported_seconds": round(age, 1),
        }
    if fold.leader is not None and not fold.resigned:
        silent = 0.0 if not follower.view.heard_at else time.monotonic() - follower.view.heard_at
        rows[fold.leader.node, fold.leader.url] = {
            "node": fold.leader.node,
            "url": fold.leader.url,
            "role": "leader",
            "lsn": fold.next_lsn,
            "behind_bytes": 0,
            "behind_seconds": 0.0,
            "reported_seconds": round(silent, 1),
        }
    rows.pop((follower.view.node, follower.url), None)
    return sorted(rows.values(), key=lambda row: (row["role"], row["node"]))


def _age(seen: SeenReport, fold: Fold, *, heard: bool) -> float:
    """Return the seconds since a report. The clocks of the nodes may differ, so while a leader is `heard`, its own
    reports since then say at least and at most how long ago that was.
    """
    age = max(time.time() - seen.report.time_ms / 1000, 0.0)
    if not heard:
        return age
    since = fold.leader_reports - seen.leader_reports
    return min(max(age, (since - 1) * REPORT_SECONDS), (since + 1) * REPORT_SECONDS)


def _engine_row(view: EngineView) -> dict[str, Any]:
    state, now = view.state, time.monotonic()
    reachable = view.answered is not None and not view.fault
    return {
        "engine": state.engine if state else "",
        "address": state.address if state else "",
        "reachable": reachable,
        "answered_seconds": None if view.answered is None else round(now - view.answered, 1),
        "fault": view.fault,
        "replicas": state.replicas if state else 0,
        "in_sync": state.in_sync if state and reachable else 0,
        "leader": state.leader if state and reachable else "",
        "checked_seconds": None if view.checked is None else round(now - view.checked, 1),
        "wrong_settings": [str(each) for each in view.wrong],
    }
