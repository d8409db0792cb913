"""The file of a run's verdict, which programs and the console read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from escrowmq.pipeline import verdict_file
from escrowmq.pipeline.rule_counts import RuleCount
from escrowmq.pipeline.verdict import Verdict
from escrowmq.pipeline.verdict_file import write_verdict


def write(folder: Path, run: int) -> Path:
    verdict = Verdict(1, 0, 2, run, 8192, 10, 5, 100, ("worst",), "LSN 0x2000, SHA-256 ab")
    return write_verdict(folder, verdict, "j", [RuleCount("DUR-1", "lost", "messages", 5, "5 messages", 1)], [])


def test_the_file_has_the_verdict_and_the_rules(tmp_path: Path) -> None:
    path = write(tmp_path, 3)
    content = json.loads(path.read_text())
    assert path.relative_to(tmp_path) == Path("verdicts/000003.json")
    assert content["rules"] == [{"rule": "DUR-1", "name": "lost", "checked": 5, "of": "5 messages", "broken": 1}]
    assert (content["run"], content["clean"], content["violations"], content["journal_id"]) == (3, False, 1, "j")
    assert path.parent.stat().st_mode & 0o077 == 0


def test_the_files_of_the_latest_runs_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdict_file, "KEPT", 2)
    for run in range(1, 6):
        write(tmp_path, run)
    assert sorted(path.name for path in (tmp_path / "verdicts").iterdir()) == ["000004.json", "000005.json"]
