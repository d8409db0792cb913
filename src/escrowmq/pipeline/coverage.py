"""Say on how much of the journal a rule was checked, for the table of rules in the report.

Some rules can be checked only on messages whose deliveries are recorded (`journal.detail = "deliveries"`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from escrowmq.pipeline.findings import RULES, Finding, LinkRule
from escrowmq.pipeline.lifecycle import MessageFacts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_UNRECORDED: Final = "none: no deliveries are recorded"
_OF_DELIVERIES: Final = frozenset(
    (RULES[finding].rule, RULES[finding].name) for finding in (Finding.NOT_MARKED, Finding.OUT_OF_ORDER)
)
_OF_MOVES: Final = (RULES[Finding.AFTER_SETTLEMENT].rule, RULES[Finding.AFTER_SETTLEMENT].name)
_OF_LINKS: Final = (LinkRule.UNACQUIRED.rule, LinkRule.UNACQUIRED.name)


class RecordedMoves(NamedTuple):
    """The numbers of a run's messages about whose whereabouts there are records.

    Args:
        delivered: messages with recorded deliveries. Those of streams, which deliver messages repeatedly and in any
            order, do not count.
        moved: messages with recorded deliveries, returns, or reservations by bulk readers.
    """

    delivered: int
    moved: int


def recorded(messages: DataFrame, facts: MessageFacts) -> RecordedMoves:
    """Count in a run's part of the table `silver.messages`."""
    rows = messages.sparkSession.sql(_RECORDED, table=messages).collect()
    once = facts.once(np.array([row.queue_id for row in rows], np.int64)).tolist()
    delivered = sum(row.delivered for row, each in zip(rows, once, strict=True) if each)
    return RecordedMoves(delivered, sum(row.moved if each else row.back for row, each in zip(rows, once, strict=True)))


def counted(subject: str, rule: tuple[str, str], number: int, found: RecordedMoves) -> int:
    """Return on how many a rule was checked. The arguments are those of `checked`."""
    if subject == "messages" and rule in _OF_DELIVERIES:
        return found.delivered
    if subject == "messages" and rule == _OF_MOVES:
        return found.moved
    return 0 if subject == "link termini" and rule == _OF_LINKS and not found.delivered else number


def checked(subject: str, rule: tuple[str, str], number: int, found: RecordedMoves) -> str:
    """Return on what a rule was checked, in words.

    Args:
        subject: what the rule is about, such as "messages".
        rule: its rule ID and name.
        number: how many subjects were checked by rules that need no recorded deliveries.
        found: the messages with records of deliveries.
    """
    if subject == "messages" and rule in _OF_DELIVERIES:
        return f"{_messages(found.delivered)} with recorded deliveries" if found.delivered else _UNRECORDED
    if subject == "messages" and rule == _OF_MOVES:
        if not found.moved:
            return "none: no deliveries, returns or reservations are recorded"
        return f"{_messages(found.moved)} with recorded deliveries, returns or reservations"
    if subject == "link termini" and rule == _OF_LINKS and not found.delivered:
        return _UNRECORDED
    return f"{number:,} {subject}"


def _messages(count: int) -> str:
    return f"{count:,} message{'s' * (count != 1)}"


_RECORDED: Final = """
    select queue_id, count_if(deliveries > 0) delivered, count_if(returned > 0 or held_for_group > 0) back,
        count_if(deliveries > 0 or returned > 0 or held_for_group > 0) moved
    from {table} where deliveries > 0 or returned > 0 or held_for_group > 0 group by queue_id"""
"""If there are none, Parquet's statistics let Spark skip the data."""
