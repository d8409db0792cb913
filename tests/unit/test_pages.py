"""tools/pages.py writes a page and finds it fresh or stale."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.pages import write_or_check


def test_write_then_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    assert write_or_check("page.md", lambda: "new\n", ["--check"], tmp_path) == 1
    assert not page.exists()
    assert write_or_check("page.md", lambda: "new\n", [], tmp_path) == 0
    assert page.read_text() == "new\n"
    assert capsys.readouterr().err == "docs/page.md is stale; run: make docs\n"
    assert write_or_check("page.md", lambda: "new\n", ["--check"], tmp_path) == 0
    page.write_text("old\n")
    assert write_or_check("page.md", lambda: "new\n", ["--check"], tmp_path) == 1
