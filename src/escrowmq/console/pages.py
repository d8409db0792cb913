"""The pages of the console by path: each has a screen, a template, and a title."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

from escrowmq.admin.http.paths import PathTable
from escrowmq.console.screens import (
    audits,
    connections,
    definitions,
    journal,
    messages,
    overview,
    people,
    policies,
    queues,
    replication,
    transactions,
    unsettled,
)
from escrowmq.console.visit import Visit

Screen = Callable[[Visit], Awaitable[dict[str, Any]]]


class Page(NamedTuple):
    """A page. `menu` is the entry of the menu that is marked on it."""

    screen: Screen
    template: str
    title: str
    menu: str
    administrators: bool = False
    """Whether it shows messages, for which the user needs the tag administrator."""


PAGES: Final[Mapping[str, Page]] = {
    "": Page(overview.overview, "overview.html", "Overview", "overview"),
    "transactions": Page(transactions.transactions, "transactions.html", "Transactions", "transactions"),
    "transactions/{xid}": Page(transactions.branch, "branch.html", "Branch", "transactions"),
    "half-messages/{vhost}/{transaction}": Page(
        transactions.half_message, "half_message.html", "Half message", "transactions", administrators=True
    ),
    "queues": Page(queues.queues, "queues.html", "Queues", "queues"),
    # The name of the hidden queue in which delayed messages wait, to which their lives lead.
    "queues/{vhost}/amq.delayed": Page(queues.delayed, "delayed.html", "Delayed messages", "queues"),
    "queues/{vhost}/{queue}": Page(queues.queue, "queue.html", "Queue", "queues"),
    "topics": Page(queues.topics, "topics.html", "Topics and groups", "topics"),
    "topics/{vhost}/{topic}": Page(queues.topic, "topic.html", "Topic", "topics"),
    "groups/{vhost}/{group}": Page(queues.group, "group.html", "Consumer group", "topics"),
    "messages": Page(messages.messages, "messages.html", "Messages", "messages"),
    "unsettled": Page(unsettled.unsettled, "unsettled.html", "Unsettled", "unsettled"),
    "journal": Page(journal.journal, "journal.html", "Journal", "journal"),
    "journal/timeline": Page(journal.timeline, "timeline.html", "Journal", "journal"),
    "journal/{lsn}": Page(journal.record, "record.html", "Record", "journal"),
    "audits": Page(audits.audits, "audits.html", "Audit", "audits"),
    "replication": Page(replication.replication, "replication.html", "Replication", "replication"),
    "connections": Page(connections.connections, "connections.html", "Connections", "connections"),
    "connections/{peer}": Page(connections.connection, "connection.html", "Connection", "connections"),
    "users": Page(people.users, "users.html", "Users", "users", administrators=True),
    "policies": Page(policies.policies, "policies.html", "Policies", "policies", administrators=True),
    "definitions": Page(definitions.definitions, "definitions.html", "Definitions", "definitions", administrators=True),
}
"""By path below `/console/`."""
MENU: Final[Mapping[str, tuple[str, str]]] = {
    page.menu: (path, page.title) for path, page in PAGES.items() if "/" not in path
}
"""The entries of the menu, with path and title."""
FOUND: Final = PathTable(PAGES)


def menu_of(administrator: bool) -> dict[str, tuple[str, str]]:
    """Return the entries of the menu that a user may open."""
    return {name: entry for name, entry in MENU.items() if administrator or not PAGES[entry[0]].administrators}
