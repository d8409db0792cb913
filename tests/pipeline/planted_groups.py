"""Journals with a consumer group, and journals with a fault in its progress or its leases."""

from __future__ import annotations

from typing import Final

from escrowmq.core.groups.options import GroupOptions
from escrowmq.core.records.groups import (
    LeasedRange,
    ProgressCause,
    SettledCause,
    SettledRange,
    encode_group_progress,
    encode_group_settled,
    encode_leased,
)
from escrowmq.core.records.kinds import Kind
from tests.pipeline.journals import Scribe
from tests.pipeline.planted import Expected

STREAM: Final = 30
GROUP: Final = 1


def group_stream(scribe: Scribe, *, dead_letters: bool = True) -> None:
    """Declare a stream with ten messages, and a group with at most three attempts."""
    scribe.queue(STREAM, "orders-0", **{"x-queue-type": "stream"})
    if dead_letters:
        scribe.queue(STREAM + 1, "dead-0", **{"x-queue-type": "stream"})
    options = GroupOptions(max_attempts=3, dead_letter_topic="dead").fields()
    fields = {"number": GROUP, "vhost": "/", "name": "readers", "user": "guest", **options}
    scribe.declare(Kind.GROUP_SET, "group", **fields)
    scribe.publish(STREAM, 1, 10)
    scribe.frame()


def lease(scribe: Scribe, first: int, length: int, generation: int, attempts: int = 1, ms: int = 1000) -> int:
    """Lease messages to a member. Returns the record's LSN."""
    due = scribe.now_us // 1000 + ms
    ranges = [LeasedRange(first, length, attempts)]
    lsn = scribe.append(Kind.GROUP_LEASED, encode_leased(GROUP, STREAM, generation, due, ranges))
    scribe.frame()
    return lsn


def settle_for_group(scribe: Scribe, first: int, length: int, generation: int, floor: int) -> int:
    """Settle messages for the group. Returns the record's LSN."""
    lsn = settled_for_group(scribe, first, length, generation, floor)
    scribe.frame()
    return lsn


def settled_for_group(scribe: Scribe, first: int, length: int, generation: int, floor: int) -> int:
    """Do `settle_for_group`, and leave the frame open."""
    ranges = [SettledRange(first, length, generation)]
    record = encode_group_settled(GROUP, STREAM, SettledCause.HANDLED, floor, ranges)
    return scribe.append(Kind.GROUP_SETTLED, record)


def progress(scribe: Scribe, floor: int, cause: ProgressCause = ProgressCause.ADVANCED) -> int:
    """Record the group's progress. Returns the record's LSN."""
    lsn = scribe.append(Kind.GROUP_PROGRESS, encode_group_progress(GROUP, STREAM, cause, floor))
    scribe.frame()
    return lsn


def good_group(scribe: Scribe) -> None:
    """Lease, prolong, settle out of order, lease again after the end of a lease, advance, and drop old messages.

    Message 4 stays leased by generation 4, for the third time; everything before it is settled, and so is 6.
    """
    group_stream(scribe)
    lease(scribe, 1, 3, generation=1)
    settle_for_group(scribe, 2, 1, generation=1, floor=1)
    settle_for_group(scribe, 1, 1, generation=1, floor=3)
    progress(scribe, 4)
    lease(scribe, 4, 1, generation=2, ms=5)
    lease(scribe, 6, 1, generation=2)
    scribe.frame(10)
    lease(scribe, 4, 1, generation=3, attempts=2, ms=5)
    settle_for_group(scribe, 6, 1, generation=2, floor=4)
    scribe.frame(10)
    lease(scribe, 4, 1, generation=9, attempts=3)
    lease(scribe, 4, 1, generation=4, attempts=3)  # prolonged by the member that has it


def group_went_back(scribe: Scribe) -> Expected:
    """The progress of a group goes back, and nobody has reset it."""
    good_group(scribe)
    return Expected("GRP-5", "progress went back", f"group {GROUP} orders-0 3", progress(scribe, 3))


def group_back_in_a_snapshot(scribe: Scribe) -> Expected:
    """A snapshot has less progress than the log."""
    good_group(scribe)
    record = encode_group_progress(GROUP, STREAM, ProgressCause.RESET, 2)
    lsn = scribe.snapshot({STREAM: [(1, 10)]}, (int(Kind.GROUP_PROGRESS), record))
    return Expected("GRP-5", "progress went back", f"group {GROUP} orders-0 2", lsn)


def group_passed_a_message(scribe: Scribe) -> Expected:
    """The progress of a group passes a message that a member still has."""
    good_group(scribe)
    lease(scribe, 5, 1, generation=5)
    lsn = settle_for_group(scribe, 5, 1, generation=5, floor=7)
    return Expected("GRP-5", "progress passed a message", f"group {GROUP} orders-0 4", lsn)


def group_settled_by_a_stale_handle(scribe: Scribe) -> Expected:
    """A message is settled by the handle of an earlier lease."""
    good_group(scribe)
    lsn = settle_for_group(scribe, 4, 1, generation=3, floor=5)
    return Expected("GRP-2", "settled by a stale handle", f"group {GROUP} orders-0 4", lsn)


def group_settled_without_a_lease(scribe: Scribe) -> Expected:
    """A message is settled that nobody has leased."""
    good_group(scribe)
    lsn = settle_for_group(scribe, 8, 1, generation=7, floor=4)
    return Expected("GRP-2", "settled by a stale handle", f"group {GROUP} orders-0 8", lsn)


def group_leased_to_two(scribe: Scribe) -> Expected:
    """A message is leased to a second member while the first one has it."""
    good_group(scribe)
    lease(scribe, 7, 1, generation=5)
    lsn = lease(scribe, 7, 1, generation=6, attempts=2)
    return Expected("GRP-2", "leased to two", f"group {GROUP} orders-0 7", lsn)


def group_leased_after_settlement(scribe: Scribe) -> Expected:
    """A message is leased that is settled for the group."""
    good_group(scribe)
    lsn = lease(scribe, 6, 1, generation=5)
    return Expected("GRP-5", "leased after settlement", f"group {GROUP} orders-0 6", lsn)


def group_leased_too_often(scribe: Scribe) -> Expected:
    """A message gets one more attempt than the group allows."""
    good_group(scribe)
    scribe.frame(2000)
    lsn = lease(scribe, 4, 1, generation=5, attempts=4)
    return Expected("GRP-4", "too many attempts", f"group {GROUP} orders-0 4", lsn)


GROUPS: Final = (
    group_went_back,
    group_back_in_a_snapshot,
    group_passed_a_message,
    group_settled_by_a_stale_handle,
    group_settled_without_a_lease,
    group_leased_to_two,
    group_leased_after_settlement,
    group_leased_too_often,
)
