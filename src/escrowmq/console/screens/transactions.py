"""Branches of every kind, half messages, and the messages in them."""

from __future__ import annotations

from typing import Any, Final

from escrowmq.admin.http.escrow import UNDECIDED
from escrowmq.console.visit import Visit

DECIDABLE: Final = ("prepared",)
"""States in which an operator can commit a branch."""
DECIDED: Final = ("heuristic_committed", "heuristic_rolled_back")
OPEN_HALVES: Final = ("pending", "parked")


async def transactions(visit: Visit) -> dict[str, Any]:
    """List the branches, the oldest first, and the half messages that are undecided."""
    branches = [row | {"name": _searched(row), "shown": _heading(row)} for row in await visit.ask("tx.list")]
    branches.sort(key=lambda row: (row["state"] != "prepared", -row["seconds"]))
    halves = [row | {"name": row["message_id"]} for row in await visit.ask("half.list", states=UNDECIDED)]
    which = visit.query.get("list", "branches")
    listed = visit.page(halves if which == "half" else branches)
    status = await visit.ask("status")
    return {
        "which": which,
        "page": listed,
        "transactions": status["transactions"],
        "half_messages": status["half_messages"],
    }


async def branch(visit: Visit) -> dict[str, Any]:
    """Show one branch, its messages, and the other branches of the same global transaction."""
    row = await visit.ask("tx.show", **visit.names)
    others = [
        each for each in await visit.ask("tx.list") if _global(each) == _global(row) and each["xid"] != row["xid"]
    ]
    messages = await visit.ask("tx.messages", **visit.names) if visit.administrator else None
    return {
        "branch": row | {"shown": _heading(row)},
        "siblings": others,
        "messages": messages,
        "may_commit": row["state"] in DECIDABLE,
        "may_roll_back": row["state"] not in DECIDED,
        "may_forget": row["state"] in DECIDED,
    }


async def half_message(visit: Visit) -> dict[str, Any]:
    """Show one half message."""
    row = await visit.ask("half.show", **visit.names)
    return {"half": row, "may_decide": row["state"] in OPEN_HALVES, "may_resume": row["state"] == "parked"}


def _heading(row: dict[str, Any]) -> str:
    """Return the readable name of a branch, else the text in its xid, else the xid."""
    if row["name"] != row["xid"] or not row["gtrid"]:
        return str(row["name"])
    return " · ".join(filter(None, (row["gtrid"], row["bqual"])))


def _searched(row: dict[str, Any]) -> str:
    """Return every text by which a branch is found with a filter."""
    return " ".join(filter(None, (row["name"], row["xid"], row["gtrid"], row["bqual"])))


def _global(row: dict[str, Any]) -> tuple[int, str]:
    """Return the format and the global transaction of an xid, whose text is FORMAT:GTRID:BQUAL."""
    return row["format_id"], row["xid"].split(":")[1]
