"""The kinds of the journal's records (docs/internals/records.md)."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Kind(IntEnum):
    """Record kinds. Their numbers are part of the journal's format and are never reused."""

    PUBLISH = 1
    SETTLE = 2
    COMMIT = 3
    RELOCATE = 4
    RETURNED = 5
    QUEUE_STATE = 6
    PAGE = 7
    DELIVERED = 8
    READDRESSED = 9
    PREPARE = 10
    PLACED = 11
    ROLLBACK = 12
    HEURISTIC = 13
    FORGET = 14
    DECIDE = 15
    COUNTERS = 16
    VHOST_SET = 17
    VHOST_DELETED = 18
    EXCHANGE_DECLARED = 19
    EXCHANGE_DELETED = 20
    QUEUE_DECLARED = 21
    QUEUE_DELETED = 22
    BOUND = 23
    UNBOUND = 24
    USER_SET = 25
    USER_DELETED = 26
    PERMISSION_SET = 27
    PERMISSION_DELETED = 28
    TOPIC_PERMISSION_SET = 29
    TOPIC_PERMISSION_DELETED = 30
    PROGRESS = 31
    HELD = 32
    RELEASED = 33
    DELIVERIES = 34
    MARKED = 35
    PROGRESS_OWNED = 36
    PROGRESS_RESET = 37
    TERMINUS_SET = 38
    TERMINUS_DELETED = 39
    ARRIVED = 40
    FORGOTTEN = 41
    ACQUIRED = 42
    GIVEN_BACK = 43
    HALF_STORED = 44
    HALF_DECIDED = 45
    HALF_CHECKED = 46
    HALF_PARKED = 47
    HALF_RESUMED = 48
    HALF_STATE = 49
    GROUP_SET = 50
    GROUP_DELETED = 51
    GROUP_LEASED = 52
    GROUP_SETTLED = 53
    GROUP_PROGRESS = 54
    GROUP_LOCKED = 55
    TRANSIENT_BOUND = 56
    OPERATED = 57
    DIGEST = 58
    POLICY_SET = 59
    POLICY_DELETED = 60
    POLICIES_APPLIED = 61
    PARAMETER_SET = 62
    PARAMETER_DELETED = 63
    REMOVED = 64


STARTED: Final = "broker.start"
"""The operation of the OPERATED record that the broker writes when it starts. No operator asks for it."""
RECORD_BYTES: Final = 1 << 30
"""The maximum length of a record that a journal accepts."""
