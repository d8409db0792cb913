"""Replicated brokers on real engines: leaders, standbys and nodes of the engine are harmed in all ways under load."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engines.nodes import EngineNodes
from tests.replica_kill import clock, network
from tests.replica_kill.__main__ import KINDS
from tests.replica_kill.judge import Known, compare, judge
from tests.replica_kill.rounds import CLOCK_FAULTS, FAULTS, NETWORK_FAULTS, shuffled
from tests.unit.sources import ROOT

SHORT = [("nats", 12, 2039), ("kafka", 4, 47)]
"""Engine, rounds, and a seed with which these have every kind of fault. On NATS, each kind comes once."""
GOOD = Known([b"a"], [[b"b", b"c"]], [[b"b", b"c"], [b"d", b"e"]], [b"a"], [], [b"b", b"c"])


def run(folder: Path, engine: str, rounds: int, seed: int) -> str:
    """Run the rounds in a process of their own, which may be in namespaces of its own."""
    kind: type[EngineNodes] = KINDS[engine]
    if (why := kind.missing()) is not None:
        pytest.skip(f"{kind.engine}: {why}")
    options = ["--rounds", str(rounds), "--seed", str(seed), "--engine", engine, "--folder", str(folder)]
    command = [sys.executable, "-u", "-m", "tests.replica_kill", *options]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout[-20_000:]
    return done.stdout


@pytest.mark.rule("REPL-1", "REPL-2", "REPL-3", "REPL-4")
@pytest.mark.slow
@pytest.mark.parametrize(("engine", "rounds", "seed"), SHORT)
def test_nothing_confirmed_is_lost_in_rounds_of_faults(engine: str, rounds: int, seed: int, tmp_path: Path) -> None:
    said = run(tmp_path, engine, rounds, seed)
    assert f"round {rounds}: " in said


def test_every_kind_of_fault_is_among_the_rounds() -> None:
    found = {
        fault for _, rounds, seed in SHORT for fault in shuffled(random.Random(seed), clocks=True, net=True)[-rounds:]
    }
    assert found == {*FAULTS, *CLOCK_FAULTS, *NETWORK_FAULTS}


def test_a_clock_of_a_process_is_set_while_it_runs(tmp_path: Path) -> None:
    if why := clock.why_not():
        pytest.skip(why)
    shifted = clock.Clock(clock.compiled(tmp_path), tmp_path / "clock")
    program = "import time\nprint(time.time(), flush=True)\ninput()\nprint(time.time(), time.monotonic(), flush=True)"
    environment = {**os.environ, **shifted.environment}
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        before = float(process.stdout.readline())
        shifted.set(-86_400)
        process.stdin.write("\n")
        process.stdin.flush()
        after, steady = map(float, process.stdout.readline().split())
    assert -86_400 <= after - before < -86_300
    assert steady > 0


def test_a_network_is_cut_in_one_direction_only(tmp_path: Path) -> None:
    if why := network.why_not():
        pytest.skip(why)
    command = [sys.executable, "-m", "tests.replica_kill.network"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "whole: out and in",
        "outgoing cut: in",
        "incoming cut: out",
        "whole: out and in",
    ]


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("engine", KINDS)
def test_a_thousand_rounds_of_faults(engine: str, tmp_path: Path) -> None:
    """`REPLICA_KILL_ROUNDS` and `REPLICA_KILL_SEED` set the number of rounds and the seed."""
    rounds, seed = int(os.environ.get("REPLICA_KILL_ROUNDS", "1000")), int(os.environ.get("REPLICA_KILL_SEED", "2"))
    run(tmp_path, engine, rounds, seed)


class TestTheJudgement:
    """The judge finds each kind of fault."""

    def test_what_agrees(self) -> None:
        judge(GOOD)

    def test_a_confirmed_message_that_is_lost(self) -> None:
        with pytest.raises(AssertionError, match="1 confirmed messages are lost: \\[b'x'\\]"):
            judge(GOOD._replace(confirmed=[b"a", b"x"]))

    def test_a_committed_transaction_that_is_lost(self) -> None:
        with pytest.raises(AssertionError, match="2 messages of committed transactions are lost"):
            judge(GOOD._replace(committed=[[b"b", b"c"], [b"d", b"e"]]))

    def test_a_transaction_that_is_there_in_part(self) -> None:
        with pytest.raises(AssertionError, match="1 transactions are there in part"):
            judge(GOOD._replace(left=[b"b", b"c", b"e"]))

    def test_a_message_that_came_back_after_its_removal(self) -> None:
        with pytest.raises(AssertionError, match="1 messages are there more than once"):
            judge(GOOD._replace(left=[b"a", b"b", b"c"]))

    def test_a_removal_without_an_answer_is_permitted_both_outcomes(self) -> None:
        judge(GOOD._replace(taken=[], uncertain=[b"a"]))
        judge(GOOD._replace(taken=[], uncertain=[b"a"], left=[b"a", b"b", b"c"]))

    def test_journals_that_differ(self) -> None:
        compare([{"1.log": b"a", "2.log": b"b"}, {"2.log": b"b"}])
        with pytest.raises(AssertionError, match=r"different bytes in \['2\.log'\]"):
            compare([{"1.log": b"a", "2.log": b"b"}, {"2.log": b"c"}])
