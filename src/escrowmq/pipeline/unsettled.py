"""Rows of the table `violations` about unsettled deliveries of link termini."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from escrowmq.pipeline.columns import plain
from escrowmq.pipeline.findings import LinkRule
from escrowmq.pipeline.links import WRONG, DurableLink, Watched

if TYPE_CHECKING:
    from collections.abc import Mapping

    from escrowmq.pipeline.audit import Audit
    from escrowmq.pipeline.store import State

_UNSETTLED_STATE: Final = 2
"""The durability of a terminus whose unsettled deliveries survive a restart."""


def title(fields: Mapping[str, Any]) -> str:
    """Return the title of a terminus from the fields of its TERMINUS_SET record."""
    return plain(f"link {fields['link']} of container {fields['container']} in vhost {fields['vhost']}")


def note_durable(known: dict[str, list[Any]], fields: Mapping[str, Any], lsn: int) -> None:
    """Note in `known`, by number, whether a terminus acquires messages before they are delivered, and since when."""
    number = str(fields["number"])
    if fields.get("role") == "outgoing" and fields["second"] and fields["durability"] == _UNSETTLED_STATE:
        label = f"{fields['container']}/{fields['link']}"
        known.setdefault(number, [plain(fields["vhost"]), label, lsn])
    else:
        known.pop(number, None)


def watched(state: State) -> Watched:
    """Return the queues and links whose steps are extracted."""
    ends = {number: lsn for number, (_, lsn) in state.termini.items() if lsn}
    found = [
        DurableLink(int(number), vhost, label, since, ends.get(number, sys.maxsize))
        for number, (vhost, label, since) in state.durable_links.items()
    ]
    vhosts = {
        ident: queue.vhost
        for ident, queue in state.queues.items()
        if found and queue.arguments.get("x-queue-type") != "stream"
    }
    return Watched(frozenset(state.acquired), vhosts, found)


def violations(audit: Audit) -> list[tuple[Any, ...]]:
    """Return the tags that arrived twice, and the messages that were acquired twice or after their settlement."""
    if audit.links is None:
        return []
    rows: list[tuple[Any, ...]] = []
    for row in audit.links.where("wrong != ''").collect():
        rule, lsns = WRONG[row.wrong], [row.past, row.lsn]
        at = datetime.fromtimestamp(row.since / 1e6, UTC)
        link = _title(audit, row.terminus)
        if row.place < 0:
            text = f"Delivery tag {bytes(row.key).hex()} of {link}: {rule.text}"
            rows.append((rule.rule, rule.name, None, None, None, None, lsns, at, text))
            continue
        queue = audit.state.queues.get(row.place)
        where = (queue.vhost, queue.name) if queue else ("", f"queue {row.place}")
        position = int.from_bytes(row.key, "big")
        text = f"Message {position} of queue {where[1]}, acquired by {link}: {rule.text}"
        rows.append((rule.rule, rule.name, *where, position, None, lsns, at, text))
    return rows


def overdue(audit: Audit, present: float) -> list[tuple[Any, ...]]:
    """Return the termini with deliveries that are unsettled for too long at the time `present`, in seconds."""
    if audit.links is None:
        return []
    limit = int((present - audit.options.unsettled_seconds) * 1e6)
    late = audit.links.where(f"wrong = '' and since < {limit}")
    rule = LinkRule.UNSETTLED
    rows = late.groupBy("terminus").agg({"lsn": "min", "since": "min", "part": "count"}).collect()
    return [
        (
            *(rule.rule, rule.name, None, None, None, None, [row["min(lsn)"]]),
            datetime.fromtimestamp(row["min(since)"] / 1e6, UTC),
            f"Terminus {row.terminus}, {_title(audit, row.terminus)}: {rule.text}: {row['count(part)']}.",
        )
        for row in rows
    ]


def _title(audit: Audit, terminus: int) -> str:
    known = audit.state.termini.get(str(terminus), [""])[0]
    return known or f"link terminus {terminus}"
