"""The nodes of brokers with one journal, the engine of their log, and the take-overs."""

from __future__ import annotations

from typing import Any

from escrowmq.admin.http.broker import BrokerRefused
from escrowmq.console.visit import Visit


async def replication(visit: Visit) -> dict[str, Any]:
    """Show who leads, how far each node follows, the engine, and every take-over, the newest first."""
    try:
        found = await visit.ask("replica.status")
    except BrokerRefused as refusal:
        return {"standing": None, "alone": str(refusal)}
    return {"standing": found, "take_overs": found["take_overs"][::-1]}
