"""When a leader may deliver and another node may claim: every cell of the tables, and every limit in time."""

from __future__ import annotations

import pytest

from escrowmq.replica.fold import CopyEnd
from escrowmq.replica.standing import (
    GATHER_MS,
    LEASE_MS,
    PATIENCE_MS,
    SILENCE_MS,
    TABLE,
    CopyComparison,
    LeaderLease,
    Notices,
    Sign,
    Silence,
    StandbyStep,
    Standing,
    next_step,
)

NOW = 100_000
F, N, W, C = StandbyStep


def at(lsn: int) -> CopyEnd:
    """The end of a copy that belongs to the last epoch."""
    return CopyEnd(5, lsn)


def test_a_leader_delivers_only_for_a_time_after_the_last_append_that_counted() -> None:
    lease = LeaderLease()
    assert not lease.holds(NOW)
    lease.acknowledged(NOW)
    assert lease.holds(NOW + LEASE_MS - 1)
    assert not lease.holds(NOW + LEASE_MS)


def test_answers_out_of_order_do_not_shorten_a_lease() -> None:
    lease = LeaderLease()
    lease.acknowledged(NOW)
    lease.acknowledged(NOW - 1000)
    assert lease.holds(NOW + LEASE_MS - 1)


def test_a_lease_ends_before_others_stop_waiting_for_the_leader() -> None:
    assert LEASE_MS < SILENCE_MS


def test_a_leader_is_missed_after_a_time_without_entries_that_count() -> None:
    silence = Silence(NOW)
    assert not silence.lasts(NOW + SILENCE_MS - 1)
    assert silence.lasts(NOW + SILENCE_MS)
    silence.heard(NOW + SILENCE_MS)
    assert not silence.lasts(NOW + 2 * SILENCE_MS - 1)


EXPECTED: dict[tuple[Sign, CopyComparison], list[StandbyStep]] = {
    (Sign.HEARD, CopyComparison.EQUAL): [F, F, F, F, F, F],
    (Sign.HEARD, CopyComparison.LONGER): [F, F, F, F, F, F],
    (Sign.SILENT, CopyComparison.EQUAL): [C, N, W, C, W, C],
    (Sign.SILENT, CopyComparison.LONGER): [N, N, W, C, W, C],
    (Sign.RESIGNED, CopyComparison.EQUAL): [C, N, W, C, W, C],
    (Sign.RESIGNED, CopyComparison.LONGER): [N, N, W, C, W, C],
    (Sign.DOUBTED, CopyComparison.EQUAL): [N, N, W, C, W, C],
    (Sign.DOUBTED, CopyComparison.LONGER): [N, N, W, C, W, C],
}


@pytest.mark.parametrize("sign", Sign)
@pytest.mark.parametrize("holding", CopyComparison)
def test_each_cell_says_what_a_node_does(sign: Sign, holding: CopyComparison) -> None:
    assert [next_step(sign, holding, notices) for notices in Notices] == EXPECTED[sign, holding]
    assert len(TABLE) == len(Sign) * len(CopyComparison)


@pytest.mark.parametrize(
    ("after", "resigned", "hole", "notices", "found_loss", "longer", "expected"),
    [
        (0, False, False, {}, False, False, Sign.HEARD),
        (0, False, False, {}, False, True, Sign.HEARD),
        (0, False, False, {}, True, False, Sign.HEARD),
        (SILENCE_MS - 1, False, False, {}, False, False, Sign.HEARD),
        (SILENCE_MS, False, False, {}, False, False, Sign.SILENT),
        (0, True, False, {}, False, False, Sign.RESIGNED),
        (SILENCE_MS, True, False, {}, False, False, Sign.RESIGNED),
        (0, False, True, {}, False, False, Sign.DOUBTED),
        (0, True, False, {"b": at(8)}, False, False, Sign.DOUBTED),
        (0, False, False, {}, True, True, Sign.DOUBTED),
    ],
)
def test_a_sign_is_made_of_the_log_and_of_the_time(
    after: int, resigned: bool, hole: bool, notices: dict[str, CopyEnd], found_loss: bool, longer: bool, expected: Sign
) -> None:
    standing = Standing("a", Silence(NOW), found_loss)
    assert standing.sign(NOW + after, resigned=resigned, hole=hole, notices=notices, longer=longer) is expected


@pytest.mark.parametrize(
    ("given", "after", "expected"),
    [
        ({}, 0, Notices.NONE),
        ({"c": at(8)}, 0, Notices.OWN_MISSING),
        ({"c": at(8)}, PATIENCE_MS, Notices.OWN_MISSING),
        ({"c": at(16)}, 0, Notices.OWN_MISSING),
        ({"b": at(8), "c": at(16)}, 0, Notices.OWN_MISSING),
        ({"b": at(16)}, GATHER_MS - 1, Notices.OWN_FRESH),
        ({"b": at(16), "c": at(16)}, GATHER_MS, Notices.OWN_LONGEST),
        ({"b": at(16), "a": at(16)}, GATHER_MS, Notices.OTHER_LONGEST),
        ({"a": at(24)}, PATIENCE_MS - 1, Notices.OTHER_LONGEST),
        ({"a": at(24), "b": at(16)}, PATIENCE_MS, Notices.OTHER_LATE),
        ({"a": CopyEnd(6, 8)}, 0, Notices.OTHER_LONGEST),
        ({"a": CopyEnd(4, 24)}, 0, Notices.OWN_MISSING),
    ],
)
def test_notices_say_whose_copy_is_the_longest(given: dict[str, CopyEnd], after: int, expected: Notices) -> None:
    standing = Standing("b", Silence(NOW))
    standing.notices(NOW, given, at(16))
    assert standing.notices(NOW + after, given, at(16)) is expected


def test_the_time_counts_from_the_first_notice_since_the_last_claim() -> None:
    standing = Standing("b", Silence(NOW))
    assert standing.notices(NOW, {"b": at(16)}, at(16)) is Notices.OWN_FRESH
    assert standing.notices(NOW + GATHER_MS, {"b": at(16)}, at(16)) is Notices.OWN_LONGEST
    assert standing.notices(NOW + GATHER_MS, {}, at(16)) is Notices.NONE
    assert standing.notices(NOW + GATHER_MS, {"b": at(16)}, at(16)) is Notices.OWN_FRESH


def test_a_leader_that_is_known_to_be_gone_is_not_waited_for() -> None:
    silence = Silence(1000)
    assert not silence.lasts(1001)
    silence.end(1001)
    assert silence.lasts(1001)
    silence.heard(1002)
    assert not silence.lasts(1003)
