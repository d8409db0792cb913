"""Progress is shown on plain lines without a terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from escrowmq.demo import display as module
from escrowmq.demo.display import Bars, Lines, display, progress_line


def test_a_line_shows_the_progress_of_each_part() -> None:
    line = progress_line(6000, 5500, 5000, 20_000)
    assert line == "published 6,000, consumed 5,500, by Spark 5,000 of 20,000 (25%)"


def test_without_a_terminal_there_are_lines(capsys: pytest.CaptureFixture[str]) -> None:
    shown = display(10)
    assert isinstance(shown, Lines)
    with shown:
        shown.say("word", "first\nsecond")
    assert capsys.readouterr().out == "word      first\n          second\n"


def test_without_progress_no_line_is_repeated(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "EVERY", 0.0)
    shown = Lines(10)
    for processed in (1, 1, 2):
        shown.show(10, 10, processed)
    assert [line.strip() for line in capsys.readouterr().out.splitlines()] == [
        "published 10, consumed 10, by Spark 1 of 10 (10%)",
        "published 10, consumed 10, by Spark 2 of 10 (20%)",
    ]


def test_a_terminal_shows_a_bar_for_each_part() -> None:
    shown = io.StringIO()
    bars = Bars(Console(file=shown, force_terminal=True, width=100), 10)
    with bars:
        bars.say("word", "first\nsecond")
        bars.show(10, 10, 5)
    text = shown.getvalue()
    assert "━" in text
    assert all(name in text for name in ("published", "consumed", "by Spark", "word", "second"))
