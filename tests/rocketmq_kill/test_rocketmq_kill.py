"""RocketMQ's calls that arrive together and are one record, with kill -9 of the broker among them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.harness.rocketmq_calls import COMMIT, ROLL_BACK, SEND, STORE, Answered, Asked
from tests.harness.rocketmq_ledger import Ledger
from tests.pipeline.direct import audited
from tests.rocketmq_kill.rounds import run_rounds

TOGETHER = 16


def _most_in_a_record(data_dir: Path) -> Counter[str]:
    """Return the most operations of each kind in one COMMIT record."""
    command = [sys.executable, "-m", "escrowmq", "inspect", str(data_dir), "--records", "--json", "--from", "0"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    most: Counter[str] = Counter()
    for line in done.stdout.splitlines():
        record = json.loads(line)
        if record.get("kind") == "COMMIT":
            most |= Counter(operation["kind"] for operation in record["record"]["operations"])
    return most


@pytest.mark.slow
@pytest.mark.rule("HALF-1", "HALF-2", "HALF-3", "HALF-11", "DUR-1", "DUR-3")
def test_three_kills_while_calls_arrive_together(tmp_path: Path) -> None:
    assert run_rounds(tmp_path, 3, seed=1)
    most = _most_in_a_record(tmp_path / "data")
    assert most["HALF_STORED"] >= TOGETHER
    assert most["HALF_DECIDED"] >= TOGETHER
    assert audited(tmp_path / "data").wrong == []


@pytest.mark.long
@pytest.mark.timeout(0)
def test_a_hundred_kills(tmp_path: Path) -> None:
    """`ROCKETMQ_KILL_ROUNDS` and `ROCKETMQ_KILL_SEED` set the number of rounds and the seed."""
    rounds, seed = int(os.environ.get("ROCKETMQ_KILL_ROUNDS", "100")), int(os.environ.get("ROCKETMQ_KILL_SEED", "2"))
    run_rounds(tmp_path, rounds, seed, lambda line: print(line, flush=True))


def _ledger(*requests: Asked, unanswered: tuple[Asked, ...] = ()) -> Ledger:
    ledger = Ledger()
    for request in (*requests, *unanswered):
        ledger.ask(request)
    for request in requests:
        ledger.answered(Answered(request, "", 1))
    return ledger


class TestTheJudgement:
    """The comparison finds each kind of fault."""

    def test_promises_that_hold(self) -> None:
        ledger = _ledger(Asked(SEND, "s"), Asked(STORE, "h"), Asked(COMMIT, "h"), unanswered=(Asked(SEND, "t"),))
        ledger.check_promises(["h", "s"])
        ledger.check_promises(["h", "s", "t"])
        ledger.check_outcomes(["h", "s", "t"])

    def test_a_send_that_was_lost(self) -> None:
        with pytest.raises(AssertionError, match="1 sends were answered, and are lost: \\['s'\\]"):
            _ledger(Asked(SEND, "s")).check_promises([])

    def test_a_commit_that_was_lost(self) -> None:
        with pytest.raises(AssertionError, match="1 commits were answered, and are lost"):
            _ledger(Asked(STORE, "h"), Asked(COMMIT, "h")).check_promises([])

    def test_a_message_that_was_delivered_twice(self) -> None:
        with pytest.raises(AssertionError, match="more than once"):
            _ledger(Asked(SEND, "s")).check_promises(["s", "s"])

    def test_a_half_message_without_a_commit(self) -> None:
        for decision in ((), (Asked(ROLL_BACK, "h"),)):
            with pytest.raises(AssertionError, match="delivered without a commit: \\['h'\\]"):
                _ledger(Asked(STORE, "h"), *decision).check_promises(["h"])

    def test_a_message_that_nobody_has_sent(self) -> None:
        with pytest.raises(AssertionError, match="never sent in this round: \\['x'\\]"):
            Ledger().check_promises(["x"])

    def test_a_half_message_that_was_stored_twice(self) -> None:
        ledger = _ledger(Asked(STORE, "h"))
        with pytest.raises(AssertionError, match="was number 1, and became 2"):
            ledger.answered(Answered(Asked(STORE, "h"), "", 2))

    def test_a_half_message_without_an_outcome(self) -> None:
        with pytest.raises(AssertionError, match="have no outcome: \\['h'\\]"):
            _ledger(Asked(STORE, "h")).check_outcomes([])

    def test_a_refusal(self) -> None:
        with pytest.raises(AssertionError, match="is refused: no room"):
            Ledger().answered(Answered(Asked(SEND, "s"), "no room"))
