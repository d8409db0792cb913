"""What is delivered and not settled: by connection, by AMQP 1.0 link, and by bulk reader."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from escrowmq.console.screens.connections import channel_row
from escrowmq.console.visit import Visit


async def unsettled(visit: Visit) -> dict[str, Any]:
    """List the connections, the links or the bulk readers that have unsettled messages, those with the most first."""
    which = visit.query.get("list", "connections")
    which = which if which in LISTS else "connections"
    return {"which": which, "page": visit.page(await LISTS[which](visit))}


async def _connections(visit: Visit) -> list[dict[str, Any]]:
    """Return the sums over the channels of each connection. The age is that of the oldest delivery of all."""
    found: dict[str, dict[str, Any]] = {}
    for channel in map(channel_row, await visit.ask("channel.list")):
        peer = channel["peer"]
        row = found.setdefault(
            peer,
            {"name": peer, "user": channel["user"], "vhost": channel["vhost"], "age": None}
            | {"channels": 0, "consumers": 0, "unsettled": 0, "uncommitted": 0},
        )
        row["channels"] += 1
        for key in ("consumers", "unsettled", "uncommitted"):
            row[key] += channel[key]
        row["age"] = max([age for age in (row["age"], channel["age"]) if age is not None], default=None)
    rows = [row for row in found.values() if row["unsettled"] or row["uncommitted"]]
    return sorted(rows, key=lambda row: -row["unsettled"])


async def _links(visit: Visit) -> list[dict[str, Any]]:
    rows = [row | {"name": row["link"]} for row in await visit.ask("link.list")]
    return sorted(rows, key=lambda row: -row["unsettled"])


async def _holds(visit: Visit) -> list[dict[str, Any]]:
    rows = [row | {"name": row["group"]} for row in await visit.ask("hold.list")]
    return sorted(rows, key=lambda row: -row["held"])


LISTS: Final[Mapping[str, Callable[[Visit], Awaitable[list[dict[str, Any]]]]]] = {
    "connections": _connections,
    "links": _links,
    "holds": _holds,
}
