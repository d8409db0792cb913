"""Queues, streams, topics and consumer groups."""

from __future__ import annotations

from typing import Any, Final

from escrowmq.admin.http.broker import BrokerRefused
from escrowmq.console.visit import Visit

PEEKED: Final = 20


async def queues(visit: Visit) -> dict[str, Any]:
    """List the queues with their depth, the longest first unless the query has another order."""
    rows = [kept.row() for kept in await visit.lists.queues.current()]
    rows.sort(key=lambda row: -row["ready"])
    return {"page": visit.page(rows)}


async def queue(visit: Visit) -> dict[str, Any]:
    """Show one queue: its figures, bindings and consumers, and its first messages."""
    vhost, name = visit.names["vhost"], visit.names["queue"]
    found, counters = await _shown(visit, "queue.show"), await _shown(visit, "counter.queue")
    bindings = [
        row
        for row in await visit.ask("binding.list", vhost=vhost)
        if row["destination_type"] == "queue" and row["destination"] == name
    ]
    consumers = [row for row in await visit.ask("consumer.list", vhost=vhost) if row["queue"] == name]
    peeked = None
    if found and visit.administrator and "peek" in visit.query and not found["unavailable"]:
        start = visit.query.get("start", "0")
        begin = int(start) if start.isascii() and start.isdigit() and len(start) < 19 else 0
        peeked = await visit.ask("queue.peek", vhost=vhost, queue=name, count=PEEKED, start=begin)
    return {
        "queue": found,
        "counters": counters,
        "bindings": bindings,
        "consumers": consumers,
        "peeked": peeked,
        "peek_size": PEEKED,
    }


async def _shown(visit: Visit, operation: str) -> dict[str, Any] | None:
    """Return what an operation shows of the queue in the path; None if there is no such queue."""
    try:
        found: dict[str, Any] = await visit.ask(operation, vhost=visit.names["vhost"], name=visit.names["queue"])
    except BrokerRefused as refused:
        if refused.missing:
            return None
        raise
    return found


async def topics(visit: Visit) -> dict[str, Any]:
    """List the topics of RocketMQ clients, and the consumer groups with their lag."""
    which = visit.query.get("list", "topics")
    rows = await visit.ask("group.list" if which == "groups" else "topic.list")
    return {"which": which, "page": visit.page(rows)}
