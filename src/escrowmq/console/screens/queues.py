"""Queues, streams, delayed messages, topics and consumer groups."""

from __future__ import annotations

from typing import Any, Final

from escrowmq.admin.http.broker import BrokerRefused
from escrowmq.admin.http.management import NothingThere
from escrowmq.console.visit import Visit

PEEKED: Final = 20


async def queues(visit: Visit) -> dict[str, Any]:
    """List the queues with their depth, the longest first unless the query has another order."""
    rows = [kept.row() for kept in await visit.lists.queues.current()]
    rows.sort(key=lambda row: -row["ready"])
    return {"page": visit.page(rows), "delayed": [row for row in await visit.ask("delayed.list") if row["messages"]]}


async def delayed(visit: Visit) -> dict[str, Any]:
    """Show the delayed messages of a virtual host: their number, and those that are due first."""
    vhost = visit.names["vhost"]
    found = await _delayed(visit)
    peeked = None
    if visit.administrator and not (found and found["unavailable"]):
        peeked = await visit.ask("delayed.peek", vhost=vhost, count=PEEKED)
    return {"vhost": vhost, "delayed": found, "peeked": peeked}


async def _delayed(visit: Visit) -> dict[str, Any] | None:
    """Return how many delayed messages the virtual host in the path has; None if it has had none."""
    return next((row for row in await visit.ask("delayed.list") if row["vhost"] == visit.names["vhost"]), None)


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
        "delayed": await _delayed(visit),
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


async def topic(visit: Visit) -> dict[str, Any]:
    """Show the streams of one topic."""
    vhost, name = visit.names["vhost"], visit.names["topic"]
    return {"vhost": vhost, "topic": name, "streams": await visit.ask("topic.show", vhost=vhost, name=name)}


async def group(visit: Visit) -> dict[str, Any]:
    """Show one consumer group with its progress in each stream. Raises NothingThere."""
    vhost, name = visit.names["vhost"], visit.names["group"]
    rows = await visit.ask("group.list")
    found = next((row for row in rows if (row["vhost"], row["name"]) == (vhost, name)), None)
    if found is None:
        raise NothingThere(f"There is no consumer group {name} in virtual host {vhost}.")
    topics_there = [row["name"] for row in await visit.ask("topic.list", vhost=vhost)]
    progress = await visit.ask("group.show", vhost=vhost, name=name)
    return {"group": found, "streams": progress, "topics": topics_there}


async def topics(visit: Visit) -> dict[str, Any]:
    """List the topics of RocketMQ clients, and the consumer groups with their lag."""
    which = visit.query.get("list", "topics")
    rows = await visit.ask("group.list" if which == "groups" else "topic.list")
    return {"which": which, "page": visit.page(rows)}
