"""The short form of the soak: mixed load beside hostile neighbours, judged by the audit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline.direct import audited
from tests.replica_kill.__main__ import KINDS
from tests.soak.histories import check_found
from tests.soak.load import Soak
from tests.soak.take_overs import Batch, batches, run_take_overs


@pytest.mark.slow
@pytest.mark.rule("FAIR-2")
@pytest.mark.rule("TX-8")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # pika leaves sockets open
def test_a_short_soak(tmp_path: Path) -> None:
    soak = Soak(tmp_path, seed=1, size=20, report=lambda _: None)
    soak.run(4, 2)
    found = audited(soak.data_dir)
    assert found.wrong == []
    assert {"committed", "rolled back"} <= {row["outcome"] for row in found.branches}


def test_a_planted_bug_that_no_history_finds_is_a_failure() -> None:
    lines: list[str] = []
    check_found("a bug", 9, iter([4, 7]), lines.append)
    assert lines == ["planted: a bug: found by 2 of 9 histories, first by that of seed 4"]
    with pytest.raises(AssertionError, match="no history of 9 has found: a bug"):
        check_found("a bug", 9, iter([]), lines.append)


def test_memory_that_grows_is_found(tmp_path: Path) -> None:
    soak = Soak(tmp_path, seed=1, size=1, report=lambda _: None)
    soak.resident = [(100 + 3 * i) << 20 for i in range(30)]
    with pytest.raises(AssertionError, match="memory has grown"):
        soak.check_memory()
    soak.resident = [60 << 20, 90 << 20, *[100 << 20, 104 << 20] * 10]
    soak.check_memory()


def test_rounds_with_replicated_brokers_come_in_batches_with_seeds_of_their_own() -> None:
    assert list(batches(160, 7)) == [
        Batch("nats", 1, 50, 7),
        Batch("nats", 51, 30, 8),
        Batch("kafka", 81, 50, 9),
        Batch("kafka", 131, 30, 10),
    ]


def test_rounds_with_replicated_brokers_go_on_after_an_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in KINDS.values():
        monkeypatch.setattr(kind, "missing", lambda: None)
    lines: list[str] = []
    ran: list[Batch] = []
    run_take_overs(160, 60, 7, lines.append, ran.append)
    assert ran == list(batches(160, 7))[1:]
    assert lines[0].endswith("--kills 0 --take-overs 160 --first-take-over 51 --seed 7")


def test_rounds_are_left_out_whose_engine_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KINDS["nats"], "missing", lambda: None)
    monkeypatch.setattr(KINDS["kafka"], "missing", lambda: "it is not there")
    lines: list[str] = []
    ran: list[Batch] = []
    run_take_overs(100, 1, 1, lines.append, ran.append)
    assert [batch.engine for batch in ran] == ["nats"]
    assert lines[0] == f"left out: replication on {KINDS['kafka'].engine}: it is not there"
