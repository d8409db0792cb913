"""Policies and operator policies of all virtual hosts."""

from __future__ import annotations

from typing import Any, Final

from escrowmq.console.visit import Visit

APPLY_TO: Final = ("all", "exchanges", "queues", "classic_queues", "quorum_queues", "streams")


async def policies(visit: Visit) -> dict[str, Any]:
    """List the policies, those that count first before others."""
    return {
        "kinds": (
            ("policy", "Policies", _ordered(await visit.ask("policy.list")), APPLY_TO),
            ("operator-policy", "Operator policies", _ordered(await visit.ask("operator_policy.list")), APPLY_TO[2:]),
        ),
        "vhosts": await visit.ask("vhost.list"),
    }


def _ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["vhost"], -row["priority"], row["name"]))
