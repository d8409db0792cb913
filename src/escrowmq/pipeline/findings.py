"""What can be wrong, by rule. A message carries its findings as bits; here stands what each means."""

from __future__ import annotations

from enum import IntFlag
from typing import Final, NamedTuple


class Finding(IntFlag):
    """Breaches that show in the life of one message on one queue."""

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


class Rule(NamedTuple):
    """How a breach is called, which rule it breaks, and a sentence about it (`{…}`: columns of the message)."""

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
        "lost", "DUR-1", "It was published and not settled, but the broker's snapshot does not hold it any more."
    ),
    Finding.RESURRECTED: Rule("came back", "TX-8", "It was settled, but the broker's snapshot still holds it."),
    Finding.INVENTED: Rule("invented", "DUR-3", "The broker's snapshot holds it, but it was never published."),
    Finding.CONTENT_LOST: Rule(
        "lost", "DUR-1", "It still waits in its queue, but the segment with its content is not there any more."
    ),
    Finding.TOO_EARLY: Rule(
        "visible too early", "TX-2", "It was handed out or settled before the commit that published it was on disk."
    ),
    Finding.AFTER_SETTLEMENT: Rule(
        "delivered again", "TX-8", "It was delivered, held or returned after it had been settled for good."
    ),
    Finding.NOT_MARKED: Rule("not marked", "ORD-3", "It was delivered again without being marked as redelivered."),
    Finding.OUT_OF_ORDER: Rule(
        "delivered out of order", "ORD-1", "Its first delivery came after that of a message with a higher position."
    ),
    Finding.OTHER_CONTENT: Rule(
        "content changed", "DUR-3", "A compaction, or the broker's snapshot, has given it another content."
    ),
    Finding.HELD_TWICE: Rule("duplicated", "ORD-4", "The broker's snapshot holds it twice."),
    Finding.NOT_HELD: Rule(
        "held out of turn", "PIPE-1", "Bulk readers have settled it, and had not held it, or have not accepted it."
    ),
    Finding.TO_NOBODY: Rule("lost", "DUR-1", "It was published to a queue that had been deleted before."),
}


class BranchRule:
    """Breaches that show in what was recorded of a branch, or of the log as a whole."""

    TORN = Rule("half-applied transaction", "TX-5", "The record of its commit does not hold all of its operations.")
    TWICE = Rule("half-applied transaction", "TX-5", "Its effects stand in more than one record.")
    DIFFERENT = Rule("half-applied transaction", "TX-5", "Its commit did not apply what had been prepared")
    CONTRADICTED = Rule("decision contradicted", "HALF-3", "It was decided, and then decided otherwise.")
    LOST = Rule(
        "lost", "DUR-1", "It was prepared and not decided, but the broker's snapshot does not hold it any more."
    )
    BACK = Rule("came back", "TX-8", "It was decided, but it is in doubt in the broker's snapshot.")
    UNPREPARED = Rule(
        "never prepared", "DUR-3", "It was decided, forgotten or in a snapshot, and no record had prepared it."
    )
    AGAIN = Rule("came back", "TX-8", "It was prepared after it had been prepared or decided.")
    CHANGED = Rule("decision contradicted", "HALF-3", "The broker's snapshot says of it something else than the log.")
    FORGOTTEN = Rule("lost", "DUR-1", "It was forgotten, and no operator had decided it.")
    NUMBERS = Rule(
        "held out of turn", "PIPE-1", "What bulk readers hold, or have settled, does not go on where it ended"
    )
    EPOCH = Rule("epoch decided again", "PIPE-2", "An application has not come farther than it had been")
    UNDECIDED = Rule(
        "undecided too long", "PIPE-5", "It has been prepared for longer than is allowed, without a decision."
    )
    DAMAGED = Rule("damaged log", "DUR-3", "The log is not whole")
    MISSING = Rule("damaged log", "DUR-3", "A part of the log is missing that no snapshot stands in for")
    CUT = Rule("lost", "DUR-1", "The log ends before the place up to which it had been on disk, and was read")
