"""What a node on a replicated log says of itself, for tests of what shows it."""

from __future__ import annotations

from typing import Any


def standing(**more: Any) -> dict[str, Any]:
    """The standing of a leader that took over from a node whose process had ended."""
    nodes = [
        {"node": "n1", "url": "amqp://n1", "role": "leader", "lsn": 4096, "behind_bytes": 0},
        {"node": "n2", "url": "amqp://n2", "role": "standby", "lsn": 1024, "behind_bytes": 3072},
    ]
    times = ({"behind_seconds": 0.0, "reported_seconds": 0.0}, {"behind_seconds": 70.0, "reported_seconds": 70.0})
    take_over = {"epoch": 4, "node": "n1", "url": "amqp://n1", "seen": 1.5e9, "before": "n2"}
    return {
        "node": "n1",
        "role": "leader",
        "reading": False,
        "epoch": 4,
        "leader": "n1",
        "leader_url": "amqp://n1",
        "lsn": 4096,
        "position": 77,
        "fault": "",
        "nodes": [row | more for row, more in zip(nodes, times, strict=True)],
        "engine": {
            "engine": "NATS",
            "address": "nats://h/s",
            "reachable": True,
            "answered_seconds": 1.0,
            "fault": "",
            "replicas": 3,
            "in_sync": 2,
            "leader": "n0",
            "checked_seconds": 12.0,
            "wrong_settings": ["the stream s: max_age is 1, not 0"],
        },
        "take_overs": [take_over | {"reason": "ended", "seconds": 0.3, "why": "whose process had ended"}],
        "silent": False,
        "appends": 9,
        "append_seconds": 0.5,
        **more,
    }
