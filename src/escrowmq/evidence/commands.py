"""Commands that administrators start from the console or over HTTP, as child processes whose lines are shown."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

LINES: Final = 200
"""The last lines of a command's output that are kept."""
LONGEST_LINE: Final = 1000
_LIMIT: Final = 1 << 20
_log = logging.getLogger("escrowmq.http")


class CommandRefused(Exception):  # noqa: N818 - named for what happened
    """A command was not started. The text is for the operator."""


class OperatorCommand:
    """One command. `lack` returns why it cannot be started, or nothing."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        lack: Callable[[], str] = lambda: "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self.lack = lack
        self.by = ""
        self.began: float | None = None
        self.ended: float | None = None
        self.lines: deque[str] = deque(maxlen=LINES)
        self._command = command
        self._clock = clock
        self._process: asyncio.subprocess.Process | None = None
        self._starting = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        """Whether the command runs."""
        return self.began is not None and self.ended is None

    @property
    def status(self) -> int | None:
        """The exit status of the last run; None if there is none."""
        return None if self._process is None else self._process.returncode

    async def start(self, by: str) -> None:
        """Start the command for the user `by`. Raises CommandRefused."""
        async with self._starting:
            if self.running:
                raise CommandRefused(f"the {self.name} that {self.by} started is still running")
            if lack := self.lack():
                raise CommandRefused(lack)
            try:
                process = await asyncio.create_subprocess_exec(
                    *self._command,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.STDOUT,
                    limit=_LIMIT,
                )
            except OSError as error:
                raise CommandRefused(f"the {self.name} cannot be started: {error}") from error
            self._process, self.by, self.began, self.ended = process, by, self._clock(), None
            self.lines.clear()
            self._task = asyncio.get_running_loop().create_task(self._follow(process))
        _log.info("%s started by=%r", self.name, by, extra={"fields": {"operation": self.name, "by": by}})

    def stop(self) -> None:
        """Ask a running command to end."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()

    def shown(self) -> dict[str, Any]:
        """Return the state for JSON; times are in seconds since the epoch."""
        return {
            "running": self.running,
            "by": self.by,
            "began": self.began,
            "ended": self.ended,
            "status": self.status,
            "lines": list(self.lines),
        }

    async def _follow(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while True:
            try:
                line = await process.stdout.readline()
            except ValueError:  # a line longer than the limit, of which the rest follows
                continue
            if not line:
                break
            self.lines.append(line.decode(errors="replace").rstrip()[:LONGEST_LINE])
        status = await process.wait()
        self.ended = self._clock()
        _log.info("%s ended with status %d", self.name, status)
