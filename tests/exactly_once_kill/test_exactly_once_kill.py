"""SET-3 end to end: sender to queue to receiver, with kill -9 of all three, by our own client and by an outside one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.exactly_once_kill.outsider import missing, read, run_outsiders_rounds
from tests.exactly_once_kill.rounds import compare, run_rounds

needs_outsider = pytest.mark.skipif(bool(missing()), reason=f"needs {missing()}")


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


class TestAnOutsideClient:
    """`qpid-amqp-1-0-client`, which resumes links with the unsettled deliveries of its application."""

    @pytest.mark.rule("SET-3")
    @pytest.mark.rule("SET-11")
    @pytest.mark.interop
    @pytest.mark.slow
    @needs_outsider
    def test_four_kills(self, tmp_path: Path) -> None:
        run_outsiders_rounds(tmp_path, 4, seed=6)

    @pytest.mark.long
    @pytest.mark.timeout(0)
    @needs_outsider
    def test_two_hundred_kills(self, tmp_path: Path) -> None:
        """`EXACTLY_ONCE_ROUNDS` and `EXACTLY_ONCE_SEED` set the number of rounds and the seed."""
        rounds = int(os.environ.get("EXACTLY_ONCE_ROUNDS", "200"))
        seed = int(os.environ.get("EXACTLY_ONCE_SEED", "2"))
        sent, received = run_outsiders_rounds(tmp_path, rounds, seed, lambda line: print(line, flush=True))
        assert set(sent.resumed) == {"again", "whole"}
        assert set(received.resumed) == {"absent", "Accepted"}

    def test_a_journal_tells_what_is_unsettled(self, tmp_path: Path) -> None:
        file = tmp_path / "journal"
        assert read(file).numbers == []
        file.write_text("begin 6e30 0\nbegin 6e31 1\nresumed whole 6e30\nsettled 6e30\n", encoding="ascii")
        assert read(file) == ([0, 1], {"6e31"}, {"whole": 1})


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
