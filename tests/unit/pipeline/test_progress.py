"""An audit shows its progress on a terminal and in a log."""

from __future__ import annotations

import io
import threading
from typing import Any, NamedTuple

import pytest
from rich.console import Console

from escrowmq.pipeline.command import IDLE
from escrowmq.pipeline.progress import Display, Watch


class Stage(NamedTuple):
    numTasks: int  # noqa: N815 - Spark's names
    numCompletedTasks: int  # noqa: N815


class Tracker:
    """A fake of Spark's status tracker: it shows two stages and one that has just ended, then Spark ends."""

    def __init__(self) -> None:
        self.asked = 0

    def statusTracker(self) -> Tracker:  # noqa: N802
        return self

    def getActiveStageIds(self) -> list[int]:  # noqa: N802
        self.asked += 1
        if self.asked > 2:
            raise RuntimeError("the session is stopped")
        return [1, 2, 3] if self.asked == 1 else []

    def getStageInfo(self, number: int) -> Stage | None:  # noqa: N802
        return Stage(10 * number, number) if number < 3 else None


class Session:
    def __init__(self) -> None:
        self.sparkContext = Tracker()


def display(line_seconds: float, *, terminal: bool = False) -> tuple[Display, io.StringIO]:
    output = io.StringIO()
    console = Console(file=output, force_terminal=terminal, width=80)
    return Display(console, line_seconds=line_seconds), output


def test_a_watch_adds_up_active_stages_until_spark_ends() -> None:
    told: list[tuple[int, int]] = []
    heard = threading.Event()

    def tell(done: int, total: int) -> None:
        told.append((done, total))
        heard.set()

    session: Any = Session()
    with Watch(session, tell, poll=0.001) as watch:
        assert heard.wait(10)
        watch._thread.join(10)
        assert not watch._thread.is_alive()
    assert told == [(3, 30)]


def test_a_log_has_a_line_for_each_stage_and_lines_at_intervals() -> None:
    shown, output = display(0.0)
    with shown:
        shown.stage("bronze: records")
        shown.tasks(3, 30)
    lines = [line.split(" s  ")[1] for line in output.getvalue().splitlines()]
    assert lines == ["bronze: records", "bronze: records: 3 of 30 tasks done"]
    shown, output = display(60.0)
    with shown:
        shown.stage("bronze: records")
        shown.tasks(3, 30)
    assert output.getvalue().count("\n") == 1


@pytest.mark.parametrize("terminal", [False, True])
def test_a_note_is_one_line_even_where_the_terminal_is_narrow(terminal: bool) -> None:
    shown, output = display(60.0, terminal=terminal)
    with shown:
        shown.note(IDLE)
    assert IDLE in output.getvalue()
    assert (f" s  {IDLE}\n" in output.getvalue()) is not terminal


def test_a_terminal_has_one_line_that_is_updated() -> None:
    shown, output = display(60.0, terminal=True)
    with shown:
        shown.stage("gold")
        shown.tasks(1, 2)
        shown._status._live.refresh()
    assert "gold: 1 of 2 tasks done …" in output.getvalue()
