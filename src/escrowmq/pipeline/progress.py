"""Show the progress of an audit: its stage, and how many of the stage's tasks are done."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from rich.console import Console

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_SECONDS: Final = 0.5
LINE_SECONDS: Final = 10.0
"""The minimum time in seconds between two lines within a stage, where stderr is not a terminal."""

Tasks = Callable[[int, int], object]
"""Called with the number of tasks done and the total."""


class Watch:
    """A context manager that reports how many tasks of Spark's active stages are done, every `poll` seconds."""

    def __init__(self, spark: SparkSession, tell: Tasks, *, poll: float = POLL_SECONDS) -> None:
        self._tracker = spark.sparkContext.statusTracker()
        self._tell = tell
        self._poll = poll
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="audit progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._poll):
            try:
                found = [self._tracker.getStageInfo(number) for number in self._tracker.getActiveStageIds()]
            except Exception:  # noqa: BLE001 - Spark has ended; the thread that uses it reports the cause
                return
            stages = [stage for stage in found if stage is not None]
            total = sum(stage.numTasks for stage in stages)
            if total:
                self._tell(sum(stage.numCompletedTasks for stage in stages), total)


class Display:
    """Shows progress on a console.

    A terminal shows a single line, which is updated. Otherwise each stage prints a line when it begins, and further
    lines at intervals of at least `line_seconds`.
    """

    def __init__(self, console: Console, *, line_seconds: float = LINE_SECONDS) -> None:
        self._console = console
        self._begin = self._told = time.monotonic()
        self._line_seconds = line_seconds
        self._stage = "reading the journal"
        self._status = self._console.status(self._stage)

    def __enter__(self) -> Self:
        self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._status.stop()

    def stage(self, name: str) -> None:
        """Show that the stage `name` begins."""
        self._stage = name
        self._tell(name)

    def note(self, text: str) -> None:
        """Print a line that stays, on a terminal too."""
        time_ = "" if self._console.is_terminal else f"{time.monotonic() - self._begin:6.1f} s  "
        self._console.print(f"{time_}{text}", highlight=False, soft_wrap=True)

    def tasks(self, done: int, total: int) -> None:
        """Show how many tasks of the current stage are done."""
        text = f"{self._stage}: {done} of {total} tasks done"
        if self._console.is_terminal:
            self._status.update(f"{text} …")
        elif time.monotonic() - self._told >= self._line_seconds:
            self._tell(text)

    def _tell(self, text: str) -> None:
        self._told = time.monotonic()
        if not self._console.is_terminal:
            self._console.print(f"{self._told - self._begin:6.1f} s  {text}", highlight=False)
        self._status.update(f"{text} …")
