"""The verdicts of audits: what the audit writes is read, and anything else in the folder is left out."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from escrowmq.evidence import audits
from escrowmq.evidence.audits import AuditFolder
from escrowmq.pipeline.rule_counts import RuleCount
from escrowmq.pipeline.verdict import Verdict
from escrowmq.pipeline.verdict_file import write_verdict


def write(folder: Path, run: int, violations: int = 0, queue: str = "q") -> Path:
    """Write a verdict as the audit does. One rule is broken by each violation."""
    verdict = Verdict(violations, violations, 0, run, 4096 * run, 10, 5, 100, head="LSN 0x10, SHA-256 ab")
    counts = [
        RuleCount("DUR-1", "lost", "messages", 5, "5 messages", violations),
        RuleCount("TX-2", "visible too early", "messages", 5, "5 messages", 0),
    ]
    violation = {"rule": "DUR-1", "name": "lost", "vhost": "/", "queue": queue, "position": 7, "branch": None}
    found = [violation | {"lsns": [64], "explanation": "It is gone."}] * violations
    return write_verdict(folder, verdict, "journal", counts, found)


def test_the_runs_are_the_latest_first(tmp_path: Path) -> None:
    for run in (1, 2, 10):
        write(tmp_path, run, violations=run % 2)
    found = AuditFolder(tmp_path).runs()
    assert [(run.run, run.clean, run.violations) for run in found] == [(10, True, 0), (2, True, 0), (1, False, 1)]
    assert [run.run for run in AuditFolder(tmp_path).runs(1)] == [10]
    first = AuditFolder(tmp_path).run(1)
    assert first is not None
    assert [rule["broken"] for rule in first.content["rules"]] == [1, 0]
    assert first.summary.keys().isdisjoint(("rules", "found"))


def test_without_an_audit_there_are_no_runs(tmp_path: Path) -> None:
    assert AuditFolder(tmp_path / "none").runs() == []
    assert AuditFolder(tmp_path).run(1) is None


def test_a_file_that_is_written_again_is_read_again(tmp_path: Path) -> None:
    folder, path = AuditFolder(tmp_path), write(tmp_path, 1)
    before = path.stat().st_mtime_ns
    assert folder.runs()[0].clean
    write(tmp_path, 1, violations=1)
    os.utime(path, ns=(before + 1, before + 1))
    assert not folder.runs()[0].clean


def _without(name: str) -> Any:
    def change(content: dict[str, Any]) -> Any:
        del content[name]
        return content

    return change


@pytest.mark.parametrize(
    "change",
    [
        *(_without(name) for name in ("run", "time", "clean", "rules", "found", "lsn", "head")),
        lambda content: content | {"rules": [{}]},
        lambda content: content | {"found": [{"rule": "x"}]},
        lambda content: content | {"time": "yesterday"},
        lambda content: content | {"lsn": "x"},
        lambda _: [],
        lambda _: None,
    ],
)
def test_a_file_that_is_no_verdict_is_left_out(tmp_path: Path, change: Any) -> None:
    write(tmp_path, 1)
    path = write(tmp_path, 2)
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    assert [run.run for run in AuditFolder(tmp_path).runs()] == [1]


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 100_000])
def test_a_file_that_is_no_json_is_left_out(tmp_path: Path, content: bytes) -> None:
    write(tmp_path, 1).write_bytes(content)
    assert AuditFolder(tmp_path).runs() == []


def test_a_file_that_is_too_long_and_other_files_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, 1)
    (path.parent / "000002.123").touch()
    (path.parent / "notes.json").touch()
    assert len(AuditFolder(tmp_path).runs()) == 1
    monkeypatch.setattr(audits, "LONGEST", 10)
    assert AuditFolder(tmp_path).runs() == []
