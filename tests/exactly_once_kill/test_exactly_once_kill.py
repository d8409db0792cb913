"""SET-3 end to end: table to queue to table, with kill -9 of the sender, the broker and the receiver."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.exactly_once_kill.rounds import compare, run_rounds


@pytest.mark.rule("SET-3")
@pytest.mark.rule("SET-8")
@pytest.mark.rule("SET-10")
@pytest.mark.rule("SET-12")
@pytest.mark.slow
def test_six_kills(tmp_path: Path) -> None:
    run_rounds(tmp_path, 6, seed=1)


@pytest.mark.long
@pytest.mark.timeout(0)
def test_two_hundred_kills(tmp_path: Path) -> None:
    """`EXACTLY_ONCE_ROUNDS` and `EXACTLY_ONCE_SEED` set the number of rounds and the seed."""
    rounds = int(os.environ.get("EXACTLY_ONCE_ROUNDS", "200"))
    run_rounds(tmp_path, rounds, int(os.environ.get("EXACTLY_ONCE_SEED", "2")), lambda line: print(line, flush=True))


class TestTheJudgement:
    """The comparison finds each kind of fault."""

    def test_a_lost_order(self) -> None:
        with pytest.raises(AssertionError, match="1 orders were lost"):
            compare([(1, "a"), (2, "b")], [(1, "a")])

    def test_an_order_shipped_twice(self) -> None:
        with pytest.raises(AssertionError, match="more than once"):
            compare([(1, "a")], [(1, "a"), (1, "a")])

    def test_an_order_that_nobody_has_placed(self) -> None:
        with pytest.raises(AssertionError, match="without an order"):
            compare([(1, "a")], [(1, "a"), (2, "b")])
