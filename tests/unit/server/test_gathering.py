"""Batches that wait for clients that come back, and a broker that learns when that is of no use."""

from __future__ import annotations

from itertools import pairwise

import pytest

from escrowmq.server.gathering import (
    FEW_RECORDS,
    MOST_BYTES,
    MOST_SECONDS,
    MOST_SKIPPED,
    SHARE,
    SLOW_US,
    Gathering,
)

SIZE = 10_000


def begin(gathering: Gathering, pending: int = 0) -> float:
    return gathering.begin(FEW_RECORDS, SIZE, SLOW_US, pending)


def test_a_batch_waits_for_a_part_of_a_slow_sync() -> None:
    gathering = Gathering()
    assert begin(gathering) == pytest.approx(SLOW_US * SHARE / 1e6)
    assert gathering.begin(FEW_RECORDS, SIZE, 1_000_000, 0) == MOST_SECONDS


@pytest.mark.parametrize(
    ("records", "size", "pending"),
    [
        (FEW_RECORDS - 1, SIZE, 0),
        (FEW_RECORDS, MOST_BYTES + 1, 0),
        (FEW_RECORDS, SIZE, MOST_BYTES + 1),
    ],
    ids=["few records", "large batch", "much pending"],
)
def test_a_batch_does_not_wait_where_that_gains_nothing(records: int, size: int, pending: int) -> None:
    assert Gathering().begin(records, size, SLOW_US, pending) == 0.0


def test_a_batch_is_whole_when_the_clients_of_the_last_one_are_back() -> None:
    gathering = Gathering()
    begin(gathering, pending=5_000)
    assert not gathering.is_whole(5_000 + SIZE // 2)
    assert gathering.is_whole(5_000 + SIZE)


def test_ever_fewer_batches_wait_while_nobody_comes_back() -> None:
    gathering = Gathering()
    waits = []
    for _ in range(4 * MOST_SKIPPED):
        waits.append(begin(gathering) > 0)
        if waits[-1]:
            gathering.end(SIZE // 2)
    tries = [i for i, waited in enumerate(waits) if waited]
    assert tries[:5] == [0, 2, 6, 14, 30]
    assert max(b - a for a, b in pairwise(tries)) == MOST_SKIPPED + 1


def test_batches_wait_again_as_soon_as_clients_come_back() -> None:
    gathering = Gathering()
    while begin(gathering):
        gathering.end(0)
    while not begin(gathering):
        pass
    gathering.end(SIZE)
    assert begin(gathering)
