"""Instructions per message are differences of counts."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench import instructions
from bench.hot_path import LOADS


def test_the_costs_of_the_start_do_not_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(instructions, "counted", lambda *asked: 10**9 + 7 * asked[-1])
    monkeypatch.setattr(shutil, "which", str)
    result = CliRunner().invoke(instructions.main, [str(tmp_path), str(tmp_path), "--only", "transient, auto-ack"])
    assert result.output.count(" 7 ") == 2
    assert "+0.0%" in result.output


def test_the_loads_exist() -> None:
    assert {load.name for load in LOADS} >= set(instructions.LOAD_NAMES)


def test_valgrind_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    result = CliRunner().invoke(instructions.main)
    assert result.exit_code == 1
    assert "apt-get install valgrind" in result.output


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
def test_a_run_that_fails_is_reported(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="failed in"):
        instructions.counted(tmp_path, "transient, auto-ack", 1)
