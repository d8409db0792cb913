"""Keeps the index of messages up to date while somebody uses it, by a process of its own."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from escrowmq.history.room import is_short
from escrowmq.human import size

LOOKED_SECONDS: Final = 600.0
"""The process ends when nobody has asked for messages for so long."""
_log = logging.getLogger("escrowmq.http")


class Indexer:
    """Starts the process when somebody looks. The disk keeps `reserve` free bytes. `clock` returns seconds."""

    def __init__(self, data_dir: Path, reserve: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        self._data_dir = data_dir
        self._reserve = reserve
        self._clock = clock
        self._looked = 0.0
        self._starting = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.returncode is None

    @property
    def stopped(self) -> str:
        """Why the index does not grow at present; empty if it does. The text is for people."""
        try:
            short = is_short(self._data_dir, self._reserve)
        except OSError:  # the process that keeps the index will say more
            return ""
        return f"the disk has fewer than {size(self._reserve)} free, which are left to the broker" if short else ""

    async def looked(self) -> None:
        """Note that somebody looks for messages, and start the process if it does not run."""
        self._looked = self._clock()
        async with self._starting:  # one process, also for requests at the same time
            if self.running:
                return
            command = (sys.executable, "-m", "escrowmq.history", str(self._data_dir), str(self._reserve))
            try:
                self._process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE)
            except OSError as error:
                _log.warning("the process that keeps the index of messages cannot be started: %s", error)
                return
            self._task = asyncio.get_running_loop().create_task(self._end_later(self._process))

    async def _end_later(self, process: asyncio.subprocess.Process) -> None:
        while process.returncode is None and (left := self._looked + LOOKED_SECONDS - self._clock()) > 0:
            try:
                async with asyncio.timeout(left):
                    await process.wait()
            except TimeoutError:
                continue
        if process.stdin is not None:
            process.stdin.close()
