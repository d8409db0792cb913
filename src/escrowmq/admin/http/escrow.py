"""The broker's own paths below `/api/escrow/`: branches, half messages, links and held messages, and what operators do
with them.

A change is a POST with a JSON object that gives a reason. User and reason are in the broker's log and in the journal.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from escrowmq.admin.audit import LONGEST_REASON
from escrowmq.admin.http.broker import BrokerRefused
from escrowmq.admin.http.listing import BadQuery
from escrowmq.admin.http.management import ADMINISTRATORS, MONITORS, NothingThere, Reading, ReadRoute
from escrowmq.admin.http.paths import PathTable
from escrowmq.core.half.state import HalfState

STATES: Final = tuple(state.name.lower() for state in HalfState)
UNDECIDED: Final = tuple(state.name.lower() for state in HalfState if not state.decided)


def _list(operation: str) -> Callable[[Reading], Awaitable[Any]]:
    async def answer(reading: Reading) -> Any:
        return reading.listed(await reading.ask(operation))

    return answer


async def _half_messages(reading: Reading) -> Any:
    """Answer with the half messages in the states of the query; by default those that are undecided, as the command."""
    states = reading.query["state"].split(",") if reading.query.get("state") else UNDECIDED
    unknown = [state for state in states if state not in STATES]
    if unknown:
        raise BadQuery(f"unknown state {unknown[0]!r}; known ones: {', '.join(STATES)}")
    return reading.listed(await reading.ask("half.list", states=states))


async def _replica(reading: Reading) -> Any:
    """Answer with the standing of this node on the replicated log."""
    try:
        return await reading.ask("replica.status")
    except BrokerRefused as refusal:
        raise NothingThere(str(refusal)) from refusal


def _one(operation: str) -> Callable[[Reading], Awaitable[Any]]:
    async def answer(reading: Reading) -> Any:
        try:
            return await reading.ask(operation, **reading.names)
        except BrokerRefused as refusal:
            if refusal.missing:
                raise NothingThere(str(refusal)) from refusal
            raise

    return answer


ESCROW_ROUTES: Final[Mapping[str, ReadRoute]] = {
    "escrow/branches": ReadRoute(_list("tx.list"), MONITORS),
    "escrow/branches/{xid}": ReadRoute(_one("tx.show"), MONITORS),
    # It shows the beginnings of the messages.
    "escrow/branches/{xid}/messages": ReadRoute(_one("tx.messages"), ADMINISTRATORS),
    "escrow/half-messages": ReadRoute(_half_messages, MONITORS),
    # It shows the beginning of the message.
    "escrow/half-messages/{vhost}/{transaction}": ReadRoute(_one("half.show"), ADMINISTRATORS),
    "escrow/delayed": ReadRoute(_list("delayed.list"), MONITORS),
    "escrow/delayed/{vhost}": ReadRoute(_one("delayed.peek"), ADMINISTRATORS),
    "escrow/links": ReadRoute(_list("link.list"), MONITORS),
    "escrow/holds": ReadRoute(_list("hold.list"), MONITORS),
    "escrow/replica": ReadRoute(_replica, MONITORS),
}
"""What can be read, by path below `/api/`."""
CHANGES: Final[Mapping[str, str]] = {
    "escrow/branches/{xid}/commit": "tx.commit",
    "escrow/branches/{xid}/rollback": "tx.rollback",
    "escrow/branches/{xid}/forget": "tx.forget",
    "escrow/half-messages/{vhost}/{transaction}/commit": "half.commit",
    "escrow/half-messages/{vhost}/{transaction}/drop": "half.drop",
    "escrow/half-messages/{vhost}/{transaction}/resume": "half.resume",
    "escrow/links/{vhost}/{container}/{link}/release": "link.release",
    "escrow/holds/{vhost}/{queue}/{group}/release": "hold.release",
}
"""The operation that a POST performs, by path below `/api/`. It needs the tag administrator."""
CHANGE_PATHS: Final = PathTable(CHANGES)


def check_kind(content_type: str) -> None:
    """Raises BadQuery unless the content of a POST is JSON: a browser sends that to another site only if the site
    agrees, so a foreign page cannot use the login that a browser has stored.
    """
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise BadQuery("the content type must be application/json")


def reason_of(content_type: str, body: bytes) -> str:
    """Return the reason that the body of a change gives. Raises BadQuery."""
    check_kind(content_type)
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):  # also for bytes that are no UTF-8, and for deeply nested arrays
        given = None
    reason = given.get("reason") if isinstance(given, dict) else None
    if isinstance(reason, str):
        reason = reason.encode("utf-8", "replace").decode()  # without halves of surrogate pairs
    if not isinstance(reason, str) or not reason.strip() or len(reason) > LONGEST_REASON:
        raise BadQuery(f'the body must be a JSON object with a "reason" of 1 to {LONGEST_REASON} characters')
    return reason
