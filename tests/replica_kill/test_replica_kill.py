"""Replicated brokers on real engines: leaders, standbys and nodes of the engine are killed and frozen under load."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.engines.kafka_nodes import KafkaNodes
from tests.engines.nats_nodes import NatsNodes
from tests.engines.nodes import EngineNodes
from tests.replica_kill.judge import Known, compare, judge
from tests.replica_kill.rounds import Rounds

GOOD = Known([b"a"], [[b"b", b"c"]], [[b"b", b"c"], [b"d", b"e"]], [b"a"], [], [b"b", b"c"])


def run(folder: Path, kind: type[EngineNodes], rounds: int, seed: int) -> list[Path]:
    if (why := kind.missing()) is not None:
        pytest.skip(f"{kind.engine}: {why}")
    with kind(folder / "engine", 3) as nodes:
        return Rounds(folder, nodes, "kills", seed).run(rounds)


@pytest.mark.rule("REPL-1", "REPL-2", "REPL-4")
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "rounds"), [(NatsNodes, 14), (KafkaNodes, 6)], ids=["nats", "kafka"])
def test_nothing_confirmed_is_lost_in_rounds_of_faults(kind: type[EngineNodes], rounds: int, tmp_path: Path) -> None:
    run(tmp_path, kind, rounds, seed=1)


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("kind", [NatsNodes, KafkaNodes], ids=["nats", "kafka"])
def test_a_thousand_rounds_of_faults(kind: type[EngineNodes], tmp_path: Path) -> None:
    """`REPLICA_KILL_ROUNDS` and `REPLICA_KILL_SEED` set the number of rounds and the seed."""
    from tests.soak.load import audit

    rounds, seed = int(os.environ.get("REPLICA_KILL_ROUNDS", "1000")), int(os.environ.get("REPLICA_KILL_SEED", "2"))
    for index, data_dir in enumerate(run(tmp_path, kind, rounds, seed)):
        audit(data_dir, tmp_path / f"audit-{index}")


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
