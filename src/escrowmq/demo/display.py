"""The output: three bars on a terminal, plain lines elsewhere, and the lines of the story in both."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Final, Protocol, Self

from rich.console import Console
from rich.highlighter import NullHighlighter
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

INDENT: Final = 10
EVERY: Final = 2.0
"""Seconds between two lines of progress without a terminal."""


class Display(Protocol):
    """Shows progress inside a `with` block, and lines at any time."""

    def say(self, label: str, text: str) -> None:
        """Show a line of the story: a label and a text. Further lines of the text are indented."""
        ...

    def show(self, published: int, settled: int, processed: int) -> None:
        """Show the progress: the numbers of messages published, acknowledged by the consumer, and decided by Spark."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


def display(total: int) -> Display:
    """Return the display that fits the output."""
    console = Console(highlighter=NullHighlighter(), soft_wrap=True)
    return Bars(console, total) if console.is_terminal else Lines(total)


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:>8,.0f}/s")


class Bars:
    """Progress bars on a terminal."""

    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description:<9}"),
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            TextColumn("{task.completed:>9,}"),
            _Rate(),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            console=console,
            expand=True,
        )
        self._published = self._progress.add_task("published", total=total)
        self._settled = self._progress.add_task("consumed", total=total)
        self._processed = self._progress.add_task("by Spark", total=total)

    def say(self, label: str, text: str) -> None:
        first, *others = text.split("\n")
        self._console.print(Text.assemble((f"{label:<{INDENT}}", "bold cyan"), first))
        for other in others:
            self._console.print(Text(" " * INDENT + other))

    def show(self, published: int, settled: int, processed: int) -> None:
        self._progress.update(self._published, completed=published)
        self._progress.update(self._settled, completed=settled)
        self._progress.update(self._processed, completed=processed)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()


class Lines:
    """Plain lines in a file, a pipe, or a CI log."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._shown = time.monotonic()
        self._last = 0, 0, 0

    def say(self, label: str, text: str) -> None:
        first, *others = text.split("\n")
        print(f"{label:<{INDENT}}{first}", *(" " * INDENT + other for other in others), sep="\n", flush=True)

    def show(self, published: int, settled: int, processed: int) -> None:
        now = time.monotonic()
        if now - self._shown < EVERY or self._last == (published, settled, processed):
            return
        self._shown = now
        self._last = published, settled, processed
        self.say("", progress_line(published, settled, processed, self._total))

    def __enter__(self) -> Self:
        self._shown = time.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        pass


def progress_line(published: int, settled: int, processed: int, total: int) -> str:
    """Format the progress on one line."""
    share = processed / total if total else 1.0
    return f"published {published:,}, consumed {settled:,}, by Spark {processed:,} of {total:,} ({share:.0%})"
