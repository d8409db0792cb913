"""The records of consumer groups."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.records.groups import (
    GroupLeased,
    GroupLocked,
    GroupProgress,
    GroupSettled,
    LeasedRange,
    ProgressCause,
    SettledCause,
    SettledRange,
    decode_group_progress,
    decode_group_settled,
    decode_leased,
    decode_locked,
    encode_group_progress,
    encode_group_settled,
    encode_leased,
    encode_locked,
    leased_ranges,
    settled_ranges,
)


def test_records_are_read_as_they_were_written() -> None:
    leased = GroupLeased(1, 2, 1 << 62, 3, [LeasedRange(4, 5, 6), LeasedRange(7, 8, 9)])
    assert decode_leased(encode_leased(*leased)) == leased
    for cause in SettledCause:
        settled = GroupSettled(1, 2, cause, 3, [SettledRange(4, 5, 6)])
        assert decode_group_settled(memoryview(encode_group_settled(*settled))) == settled
    for why in ProgressCause:
        progress = GroupProgress(1, 2, why, 3)
        assert decode_group_progress(encode_group_progress(*progress)) == progress
    locked = GroupLocked(1, 2, 3, "ünïcode")
    assert decode_locked(encode_locked(*locked)) == locked


@given(st.dictionaries(st.integers(1, 30), st.integers(0, 2)))
def test_ranges_are_the_positions_with_their_numbers(numbers: dict[int, int]) -> None:
    for ranges in (settled_ranges(numbers), leased_ranges(numbers)):
        found = {position: number for first, length, number in ranges for position in range(first, first + length)}
        assert found == numbers
        assert [each.first for each in ranges] == sorted(each.first for each in ranges)
