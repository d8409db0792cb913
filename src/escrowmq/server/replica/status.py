"""What `escrowmq replica status` and the HTTP interface show of a node."""

from __future__ import annotations

from typing import Any

from escrowmq.server.replica.follower import Follower


def described(follower: Follower) -> dict[str, Any]:
    """Return the standing of a node for JSON."""
    view = follower.view
    return {
        "node": view.node,
        "role": view.role,
        "epoch": view.epoch,
        "leader": view.leader,
        "leader_url": view.leader_url,
        "lsn": follower.copy.end_lsn,
        "position": follower.tail.position,
        "fault": view.fault,
        "take_overs": [each._asdict() for each in view.take_overs],
    }
