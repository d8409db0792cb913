"""What `escrowmq replica status` and the HTTP interface show of a node."""

from __future__ import annotations

from typing import Any

from escrowmq.server.replica.follower import Follower


def described(follower: Follower) -> dict[str, Any]:
    """Return the standing of a node for JSON."""
    standing = follower.standing
    return {
        "node": standing.node,
        "role": standing.role,
        "epoch": standing.epoch,
        "leader": standing.leader,
        "leader_url": standing.leader_url,
        "lsn": follower.copy.end_lsn,
        "position": follower.tail.position,
        "fault": standing.fault,
        "take_overs": [each._asdict() for each in standing.take_overs],
    }
