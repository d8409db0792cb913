"""The guide's programs run, and print the results shown in the guide."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

from tests.docs.pages import blocks
from tests.spark.desk import Desk
from tests.unit.sources import ROOT

GUIDE = ROOT / "docs" / "guides" / "from-queue-to-table.md"
PRINT = re.compile(r"^\s*print\(.*\)  # (.+)$", re.MULTILINE)
URL = "amqp://guest:guest@127.0.0.1:5672/"


def test_the_programs_of_the_guide_print_the_shown_results(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = "\n".join(block.text for block in blocks(GUIDE, "py"))
    assert URL in program
    monkeypatch.chdir(tmp_path)
    # Spark resolves relative paths from the folder in which the JVM was started.
    for name in ("orders-table", "orders-checkpoint", "large-checkpoint", "split-checkpoint", "nightly"):
        program = program.replace(f'"{name}"', f'"{tmp_path / name}"', 2) if name != "nightly" else program
    program = program.replace('parquet("nightly")', f'parquet("{tmp_path / "nightly"}")')
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(program.replace(URL, desk.broker.url), str(GUIDE), "exec"), {"__name__": "guide"})
    assert said.getvalue().split() == PRINT.findall(program)
