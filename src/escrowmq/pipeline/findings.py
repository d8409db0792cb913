"""The violations that an audit can find, each with its rule ID and explanation. A message's findings are bits."""

from __future__ import annotations

from enum import IntFlag
from typing import Final, NamedTuple


class Finding(IntFlag):
    """Violations in the life of one message on one queue."""

    DUPLICATED = 1
    REORDERED = 2
    SETTLED_TWICE = 4
    UNKNOWN = 8
    LOST = 16
    RESURRECTED = 32
    INVENTED = 64
    CONTENT_LOST = 128
    TOO_EARLY = 256
    AFTER_SETTLEMENT = 512
    NOT_MARKED = 1024
    OUT_OF_ORDER = 2048
    OTHER_CONTENT = 4096
    HELD_TWICE = 8192
    TO_NOBODY = 16384
    NOT_HELD = 32768
    NO_SUCH_QUEUE = 65536
    NO_CAUSE = 131072
    MISCOUNTED = 262144


class Rule(NamedTuple):
    """A kind of violation.

    Args:
        name: its name in tables and reports.
        rule: the ID of the broken rule in docs/semantics.md.
        text: one sentence that explains it.
    """

    name: str
    rule: str
    text: str


RULES: Final[dict[Finding, Rule]] = {
    Finding.DUPLICATED: Rule("duplicated", "ORD-4", "The position was published a second time."),
    Finding.REORDERED: Rule(
        "reordered", "ORD-1", "It was published after a message with a higher position on the same queue."
    ),
    Finding.SETTLED_TWICE: Rule("settled twice", "SET-4", "It was settled again after it had been settled."),
    Finding.UNKNOWN: Rule("never published", "DUR-3", "It was settled, or handed out, but never published."),
    Finding.LOST: Rule(
        "lost", "DUR-1", "It was published and not settled, but the broker's snapshot no longer contains it."
    ),
    Finding.RESURRECTED: Rule("came back", "TX-8", "It was settled, but the broker's snapshot still contains it."),
    Finding.INVENTED: Rule("invented", "DUR-3", "The broker's snapshot contains it, but it was never published."),
    Finding.CONTENT_LOST: Rule(
        "lost", "DUR-1", "It is still in its queue, but the segment with its content has been deleted."
    ),
    Finding.TOO_EARLY: Rule(
        "visible too early", "TX-2", "It was handed out or settled before the commit that published it was on disk."
    ),
    Finding.AFTER_SETTLEMENT: Rule(
        "delivered again", "TX-8", "It was delivered, reserved or returned after it had been settled."
    ),
    Finding.NOT_MARKED: Rule("not marked", "ORD-3", "It was delivered again without being marked as redelivered."),
    Finding.OUT_OF_ORDER: Rule(
        "delivered out of order", "ORD-1", "Its first delivery came after that of a message with a higher position."
    ),
    Finding.OTHER_CONTENT: Rule(
        "content changed", "DUR-3", "Compaction or the broker's snapshot gave it different content."
    ),
    Finding.HELD_TWICE: Rule("duplicated", "ORD-4", "The broker's snapshot contains it twice."),
    Finding.NOT_HELD: Rule(
        "held out of turn",
        "PIPE-1",
        "A group of bulk readers settled it without having reserved it, or with an outcome other than accepted.",
    ),
    Finding.TO_NOBODY: Rule("lost", "DUR-1", "It was published to a queue that had already been deleted."),
    Finding.NO_SUCH_QUEUE: Rule(
        "no such queue", "PIPE-8", "A record names it before its queue was declared, or after the queue was deleted."
    ),
    Finding.NO_CAUSE: Rule(
        "outcome without a cause",
        "PIPE-8",
        "It expired without a time to live or before its end, was dropped although no limit was reached, or left at a "
        "delivery limit that it had not reached.",
    ),
    Finding.MISCOUNTED: Rule(
        "miscounted", "PIPE-8", "The number of its returns or failed deliveries did not grow by one with each record."
    ),
}


class BranchRule:
    """Violations in the records of a branch, or in the log as a whole."""

    TORN = Rule("half-applied transaction", "TX-5", "The record of its commit does not contain all of its operations.")
    TWICE = Rule("half-applied transaction", "TX-5", "It was decided more than once, in several records.")
    DIFFERENT = Rule("half-applied transaction", "TX-5", "Its commit differs from what was prepared")
    CONTRADICTED = Rule("decision contradicted", "HALF-3", "It was decided, and later decided the other way.")
    LOST = Rule("lost", "DUR-1", "It was prepared and not decided, but the broker's snapshot no longer contains it.")
    BACK = Rule("came back", "TX-8", "It was decided, but it is in doubt in the broker's snapshot.")
    UNPREPARED = Rule(
        "never prepared", "DUR-3", "It was decided, forgotten or in a snapshot, but no record had prepared it."
    )
    AGAIN = Rule("came back", "TX-8", "It was prepared after it had been prepared or decided.")
    CHANGED = Rule("decision contradicted", "HALF-3", "The broker's snapshot and the log disagree about it.")
    FORGOTTEN = Rule("lost", "DUR-1", "It was forgotten, but no operator had decided it, or it was forgotten before.")
    NUMBERS = Rule(
        "held out of turn",
        "PIPE-1",
        "A reservation or a settlement by bulk readers does not continue where the last one ended",
    )
    CHAIN = Rule("log changed", "PIPE-8", "The log is not the one that was written")
    REMOVED = Rule(
        "segment removed", "PIPE-8", "A part of the log is missing, and the broker has not noted that it deleted it"
    )
    DIGEST = Rule("record changed", "PIPE-8", "A record was changed after it had been written")
    NAMES = Rule("names do not match", "PIPE-8", "A record does not fit the names that exist at that point")
    EPOCH = Rule("epoch decided again", "PIPE-2", "The epochs of an application do not increase")
    UNDECIDED = Rule("undecided too long", "PIPE-5", "It has been in doubt for longer than the limit.")
    DAMAGED = Rule("damaged log", "DUR-3", "The log is damaged")
    MISSING = Rule("damaged log", "DUR-3", "A part of the log is missing, and no snapshot replaces it")
    CUT = Rule("lost", "DUR-1", "The log ends before the point up to which an earlier run read it")


class HalfRule:
    """Violations in the lives of half messages."""

    TWICE = Rule("half message decided twice", "HALF-3", "It was decided again in the same way, with a second effect.")
    CONTRADICTED = Rule(
        "decision contradicted", "HALF-3", "It was decided, and later decided the other way, parked or resumed."
    )
    AGAINST = Rule(
        "against its decision",
        "HALF-2",
        "The record of its decision does not remove it, or delivers it after a rollback.",
    )
    UNDECIDED = Rule(
        "delivered undecided", "HALF-2", "It was removed or delivered, and the same record does not decide it."
    )
    LATE = Rule("late decision", "HALF-6", "A producer decided it after it had been parked.")
    UNKNOWN = Rule("decided, but never stored", "HALF-12", "It was decided, but no record had stored it.")
    TOO_OFTEN = Rule("checked too often", "HALF-4", "It was checked more often than allowed, or after its decision.")


class GroupRule:
    """Violations in the progress of consumer groups."""

    WENT_BACK = Rule(
        "progress went back", "GRP-5", "The progress of the group went back, and no operator has reset it."
    )
    PASSED = Rule("progress passed a message", "GRP-5", "The progress of the group passed it, but it was not settled.")
    STALE = Rule("settled by a stale handle", "GRP-2", "It was settled by a handle that is not that of its last lease.")
    LEASED_TWICE = Rule("leased to two", "GRP-2", "It was leased to a member while another one had it.")
    LEASED_SETTLED = Rule("leased after settlement", "GRP-5", "It was leased after it had been settled for the group.")
    TOO_OFTEN = Rule(
        "too many attempts",
        "GRP-4",
        "It was leased again after its last attempt, and not moved to the dead-letter topic.",
    )


class RouteRule:
    """Violations in the routes of messages, found by routing them again."""

    EXTRA = Rule("routed wrongly", "PIPE-8", "It is in a queue to which no binding led")
    MISSING = Rule("routed wrongly", "PIPE-8", "A message is missing from a queue to which a binding led")


class LinkRule:
    """Violations in the unsettled deliveries of link termini."""

    ARRIVED_TWICE = Rule(
        "arrived twice",
        "SET-9",
        "It arrived again before the sender had settled it, so its message was enqueued twice.",
    )
    ACQUIRED_TWICE = Rule(
        "acquired twice", "SET-10", "A link terminus acquired it while it belonged to a terminus already."
    )
    UNACQUIRED = Rule(
        "delivered without acquisition", "SET-10", "A durable link delivered it while its terminus did not have it."
    )
    AFTER_SETTLEMENT = Rule("delivered again", "TX-8", "A link terminus acquired it after it had been settled.")
    UNSETTLED = Rule("unsettled too long", "PIPE-5", "It has deliveries that are unsettled for longer than the limit")


def of_subjects() -> dict[str, list[tuple[str, str]]]:
    """Return the kinds of violations, as (rule ID, name), by what they are about."""
    others = {
        "groups of bulk readers": [BranchRule.NUMBERS],
        "applications with epochs": [BranchRule.EPOCH],
        "names": [BranchRule.NAMES],
        "records": [
            BranchRule.CHAIN,
            BranchRule.REMOVED,
            BranchRule.DIGEST,
            BranchRule.DAMAGED,
            BranchRule.MISSING,
            BranchRule.CUT,
        ],
    }
    apart = [rule for rules in others.values() for rule in rules]
    subjects = {
        "messages": list(RULES.values()),
        "branches": [rule for rule in _rules_of(BranchRule) if rule not in apart],
        **others,
        "link termini": _rules_of(LinkRule),
        "queues of half messages": _rules_of(HalfRule),
        "consumer groups": _rules_of(GroupRule),
        "routes": _rules_of(RouteRule),
    }
    return {
        subject: list(dict.fromkeys((rule.rule, rule.name) for rule in rules)) for subject, rules in subjects.items()
    }


def _rules_of(table: type) -> list[Rule]:
    return [rule for rule in vars(table).values() if isinstance(rule, Rule)]
