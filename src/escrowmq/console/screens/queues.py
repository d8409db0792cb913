"""Queues, streams, topics and consumer groups."""

from __future__ import annotations

from typing import Any, Final

from escrowmq.console.visit import Visit

PEEKED: Final = 20


async def queues(visit: Visit) -> dict[str, Any]:
    """List the queues with their depth, the longest first unless the query has another order."""
    rows = await visit.ask("queue.list")
    rows.sort(key=lambda row: -row["ready"])
    return {"page": visit.page(rows)}


async def queue(visit: Visit) -> dict[str, Any]:
    """Show one queue: its figures, bindings and consumers, and its first messages."""
    vhost, name = visit.names["vhost"], visit.names["queue"]
    rows = await visit.ask("queue.list", vhost=vhost)
    found = next((row for row in rows if row["name"] == name), None)
    counters = [row for row in await visit.ask("counter.queues", vhosts=[vhost]) if row["name"] == name]
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
        "counters": counters[0] if counters else None,
        "bindings": bindings,
        "consumers": consumers,
        "peeked": peeked,
        "peek_size": PEEKED,
    }


async def topics(visit: Visit) -> dict[str, Any]:
    """List the topics of RocketMQ clients, and the consumer groups with their lag."""
    which = visit.query.get("list", "topics")
    rows = await visit.ask("group.list" if which == "groups" else "topic.list")
    return {"which": which, "page": visit.page(rows)}
