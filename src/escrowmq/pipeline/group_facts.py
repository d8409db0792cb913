"""Facts about consumer groups for the audit of their progress, and its rows of the table `violations`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from escrowmq.pipeline.columns import plain
from escrowmq.pipeline.groups import WRONG, GroupFacts, Life, Terms
from escrowmq.pipeline.store import ConsumerGroup

if TYPE_CHECKING:
    from escrowmq.pipeline.audit import Audit
    from escrowmq.pipeline.store import State


def note(known: dict[str, ConsumerGroup], fields: Mapping[str, Any], lsn: int) -> None:
    """Note the fields of a GROUP_SET or a GROUP_DELETED record."""
    number = str(fields["number"])
    if "name" not in fields:
        if number in known:
            known[number].deleted = True
        return
    group = known.setdefault(number, ConsumerGroup(plain(fields["vhost"]), plain(fields["name"])))
    terms = lsn, fields["max_attempts"], plain(fields["dead_letter_topic"])
    if terms not in group.terms:
        group.terms = sorted([*group.terms, terms])


def streams(state: State) -> frozenset[int]:
    """Return the numbers of all streams."""
    return frozenset(i for i, queue in state.queues.items() if queue.arguments.get("x-queue-type") == "stream")


def facts(state: State, start: int) -> GroupFacts:
    """Return the facts that apply to all streams. `start` is the LSN from which the log is complete."""
    lives: dict[tuple[str, str], list[Life]] = {}
    for queue in state.queues.values():
        life = Life(queue.since, queue.deleted[0] if queue.deleted else sys.maxsize)
        lives.setdefault((queue.vhost, queue.name), []).append(life)
    return GroupFacts(
        start=start,
        vhosts={ident: queue.vhost for ident, queue in state.queues.items()},
        terms={
            int(number): [Terms(*terms) for terms in group.terms] for number, group in state.consumer_groups.items()
        },
        lives=lives,
        ended=(
            frozenset(int(number) for number, group in state.consumer_groups.items() if group.deleted),
            frozenset(ident for ident, queue in state.queues.items() if queue.deleted),
        ),
    )


def violations(audit: Audit) -> list[tuple[Any, ...]]:
    """Return rows of the table `violations` about consumer groups."""
    if audit.groups is None:
        return []
    rows: list[tuple[Any, ...]] = []
    for row in audit.groups.where("wrong != ''").collect():
        rule = WRONG[row.wrong]
        queue = audit.state.queues.get(row.stream)
        where = (queue.vhost, queue.name) if queue else ("", f"queue {row.stream}")
        group = audit.state.consumer_groups.get(str(row.group))
        title = f"consumer group {group.name}" if group else f"consumer group number {row.group}"
        at = datetime.fromtimestamp(row.since / 1e6, UTC)
        text = f"Message {row.position} of stream {where[1]}, {title}: {rule.text}"
        rows.append((rule.rule, rule.name, *where, row.position, None, [row.past, row.lsn], at, text))
    return rows
