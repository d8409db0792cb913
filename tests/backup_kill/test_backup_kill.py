"""Backups under load, with kill -9 of the backup, of the follower and of the broker; restored, audited, counted."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from tests.backup_kill.noted import Noted, NotedSet, Preparing
from tests.backup_kill.rounds import STEPS, Halves, Rounds
from tests.kill.ledger import Transaction


@pytest.mark.rule("DUR-1")
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # pika leaves sockets open
def test_a_round_of_each_kind(tmp_path: Path) -> None:
    Rounds(tmp_path, 1).run(len(STEPS))


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_fifty_rounds(tmp_path: Path) -> None:
    """`BACKUP_ROUNDS` and `BACKUP_SEED` set the number of rounds and the seed."""
    rounds, seed = int(os.environ.get("BACKUP_ROUNDS", "50")), int(os.environ.get("BACKUP_SEED", "2"))
    Rounds(tmp_path, seed).run(rounds, lambda line: print(line, flush=True))


class TestTheJudgement:
    """The checks find each kind of fault."""

    def test_what_came_later_need_not_be_there(self) -> None:
        ledger = Noted()
        ledger.confirmed.add(1)
        ledger.committed[7] = Transaction(7, {"left": [b"7:0"]})
        middle = max(ledger.confirmed.times[1], ledger.committed.times[7]) + 1
        ledger.confirmed.add(2)
        ledger.confirmed.times[2] = middle + 1
        ledger.sent = 3
        ledger.before(middle).check_confirmed([1])
        with pytest.raises(AssertionError, match="lost"):
            ledger.before(middle + 2).check_confirmed([1])
        with pytest.raises(AssertionError, match="was committed, but is lost"):
            ledger.before(middle).check_transactions({"left": []})
        ledger.before(0).check_transactions({"left": []})

    @pytest.mark.parametrize(
        ("left", "right", "fault"),
        [([b"2"], [], "one of two queues"), ([b"2", b"2"], [b"2", b"2"], "twice"), ([], [], "lost")],
    )
    def test_a_branch(self, left: list[bytes], right: list[bytes], fault: str) -> None:
        preparing = Preparing.__new__(Preparing)
        preparing.prepared, preparing.rolled_back = NotedSet(), {4}
        preparing.prepared.update([2, 4])
        preparing.check({"xa-left": [b"2"], "xa-right": [b"2"]}, math.inf)
        with pytest.raises(AssertionError, match=fault):
            preparing.check({"xa-left": left, "xa-right": right}, math.inf)

    @pytest.mark.parametrize(
        ("there", "undecided", "fault"),
        [
            (["xa", "xa"], {"C"}, "committed twice"),
            ([], {"C"}, "1 committed half messages are lost"),
            (["xa", "xb"], {"C"}, "rolled back, and are there"),
            (["xa"], set(), "1 stored half messages are lost; one is xc"),
        ],
    )
    def test_half_messages(self, tmp_path: Path, there: list[str], undecided: set[str], fault: str) -> None:
        said = tmp_path / "said.txt"
        said.write_text(
            "stored xa A 1\ncommitted xa A 2\nstored xb B 3\nrolling xb B 4\nstored xc C 5\nstored xd D 9\nstored xe"
        )
        halves = Halves(said, "x")
        halves.check(["xa", "other"], {"C"}, 6)
        with pytest.raises(AssertionError, match=fault):
            halves.check(there, undecided, 6)
