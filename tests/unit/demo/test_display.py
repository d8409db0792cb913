"""Progress where there is no terminal."""

from __future__ import annotations

import pytest

from escrowmq.demo.display import Lines, display, progress_line


def test_a_line_tells_how_far_how_fast_and_how_long() -> None:
    line = progress_line(6000, 5000, 20_000, 2.5)
    assert line == "published 6,000, consumed 5,000 of 20,000 (25%), 2,000/s, about 8 s left"


def test_before_the_first_message_nothing_is_promised() -> None:
    assert progress_line(0, 0, 20_000, 0.0) == "published 0, consumed 0 of 20,000 (0%), 0/s"


def test_without_a_terminal_there_are_lines(capsys: pytest.CaptureFixture[str]) -> None:
    shown = display(10)
    assert isinstance(shown, Lines)
    with shown:
        shown.say("word", "first\nsecond")
    assert capsys.readouterr().out == "word      first\n          second\n"
