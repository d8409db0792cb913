"""Lines of the log that repeat."""

from __future__ import annotations

import logging

from escrowmq.admin.http.repetition import MOST, WINDOW_SECONDS, Repetition


def line(text: str, *args: object) -> logging.LogRecord:
    return logging.LogRecord("n", logging.WARNING, "p", 1, text, args, None)


def test_few_lines_of_a_kind_pass_and_the_others_are_counted() -> None:
    now = [0.0]
    repetition = Repetition(lambda: now[0])
    passed = [repetition.filter(line("invalid %d", number)) for number in range(2 * MOST)]
    assert passed == [True] * MOST + [False] * MOST
    assert repetition.filter(line("other"))
    now[0] = WINDOW_SECONDS
    late = line("invalid %d", 7)
    assert repetition.filter(late)
    assert late.getMessage() == f"invalid 7 ({MOST} such lines were left out before this one)"
    again = line("invalid %d", 8)
    assert repetition.filter(again)
    assert again.getMessage() == "invalid 8"


def test_the_memory_for_kinds_is_bounded() -> None:
    repetition = Repetition(lambda: 0.0)
    assert all(repetition.filter(line(f"kind {number}")) for number in range(3000))
