"""Users, permissions and virtual hosts."""

from __future__ import annotations

from typing import Any

from escrowmq.console.visit import Visit


async def users(visit: Visit) -> dict[str, Any]:
    """List the users with their permissions, and the virtual hosts."""
    permissions: dict[str, list[Any]] = {}
    for row in await visit.ask("permission.list"):
        permissions.setdefault(row["user"], []).append(row)
    return {
        "page": visit.page(await visit.ask("user.list")),
        "permissions": permissions,
        "vhosts": await visit.ask("vhost.list"),
    }
