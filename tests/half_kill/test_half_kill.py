"""HALF end to end: local transactions in PostgreSQL and half messages, with kill -9 of broker and producers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.half_kill.rounds import Found, compare, run_rounds
from tests.xa.postgres import needs_postgresql

SEED_OF_KILLS = 25
"""A producer is killed, then the broker together with the other producer."""


@needs_postgresql
@pytest.mark.rule("HALF-1", "HALF-2", "HALF-3", "HALF-4")
@pytest.mark.interop
@pytest.mark.slow
def test_two_rounds_of_kills(tmp_path: Path) -> None:
    found = run_rounds(tmp_path, 2, SEED_OF_KILLS)
    assert found.placed
    assert found.given_up


@needs_postgresql
@pytest.mark.long
@pytest.mark.timeout(0)
def test_two_hundred_kills(tmp_path: Path) -> None:
    """`HALF_KILL_ROUNDS` and `HALF_KILL_SEED` set the number of rounds and the seed."""
    rounds, seed = int(os.environ.get("HALF_KILL_ROUNDS", "200")), int(os.environ.get("HALF_KILL_SEED", "2"))
    run_rounds(tmp_path, rounds, seed, lambda line: print(line, flush=True))


class TestTheJudgement:
    """The comparison finds each kind of fault."""

    def test_orders_and_deliveries_that_agree(self) -> None:
        compare(Found(["a", "b"], ["c"], ["b", "a"]))

    def test_a_message_that_was_lost(self) -> None:
        with pytest.raises(AssertionError, match="1 orders were placed, but not delivered: \\['b'\\]"):
            compare(Found(["a", "b"], [], ["a"]))

    def test_a_message_that_was_delivered_twice(self) -> None:
        with pytest.raises(AssertionError, match="more than once"):
            compare(Found(["a"], [], ["a", "a"]))

    def test_a_message_without_its_local_transaction(self) -> None:
        with pytest.raises(AssertionError, match="delivered, but not placed: \\['c'\\]"):
            compare(Found(["a"], ["c"], ["a", "c"]))
