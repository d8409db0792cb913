"""Clients: their connections, channels and consumers, and one connection with all that belongs to it."""

from __future__ import annotations

from typing import Any

from escrowmq.admin.http.management import NothingThere
from escrowmq.admin.http.shapes import channel_name
from escrowmq.console.visit import Visit


async def connections(visit: Visit) -> dict[str, Any]:
    """List the connections, or the channels, or the consumers."""
    which = visit.query.get("list", "connections")
    if which == "channels":
        rows = [channel_row(row) for row in await visit.ask("channel.list")]
        rows.sort(key=lambda row: -row["unsettled"])
    elif which == "consumers":
        rows = [row | {"name": row["queue"]} for row in await visit.ask("consumer.list")]
    else:
        which = "connections"
        rows = [row | {"name": row["peer"]} for row in await visit.ask("connection.list")]
    return {"which": which, "page": visit.page(rows)}


async def connection(visit: Visit) -> dict[str, Any]:
    """Show one connection with its channels and consumers. Raises NothingThere."""
    peer = visit.names["peer"]
    found = next((row for row in await visit.ask("connection.list") if row["peer"] == peer), None)
    if found is None:
        raise NothingThere(f"There is no connection from {peer}; it may have been closed.")
    consumers = [row for row in await visit.ask("consumer.list") if row["peer"] == peer]
    return {
        "connection": found,
        "channels": [channel_row(row) for row in await visit.ask("channel.list", peer=peer)],
        "consumers": consumers,
    }


def channel_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of `channel.list` with a name to filter by, and the age in seconds."""
    age = None if row["age_ms"] is None else row["age_ms"] // 1000
    return row | {"name": channel_name(row["peer"], row["number"]), "age": age}
