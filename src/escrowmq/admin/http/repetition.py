"""A filter for the log, so that clients cannot fill it with lines of one kind, such as those of invalid requests."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

MOST: Final = 5
"""Lines of one kind in `WINDOW_SECONDS`."""
WINDOW_SECONDS: Final = 60.0
KINDS: Final = 1000
"""Kinds of lines that are remembered; then all are forgotten."""


class Repetition(logging.Filter):
    """Lets a few lines of each kind pass in a while. The next one after that says how many were left out."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._kinds: dict[str, tuple[float, int]] = {}  # the beginning of the window, and the lines in it

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a line is to be logged. Lines are of one kind if their texts differ in arguments only."""
        kind, now = str(record.msg), self._clock()
        began, count = self._kinds.get(kind, (now, 0))
        if now - began >= WINDOW_SECONDS:
            if count > MOST:
                record.msg = f"{kind} ({count - MOST} such lines were left out before this one)"
            began, count = now, 0
        if len(self._kinds) >= KINDS:
            self._kinds.clear()
        self._kinds[kind] = began, count + 1
        return count < MOST
