"""The event loop of a NATS client that a thread runs for one append after the other."""

from __future__ import annotations

import asyncio
import selectors
from typing import Final

_UNASKED: Final = 16
"""How often in a row the loop may run callbacks before it asks the kernel what is ready."""


class _Selector(selectors.DefaultSelector):
    """Does not ask the kernel while the loop has callbacks to run.

    Each question lets other threads have the interpreter, and a thread that is busy gives it back only after half a
    millisecond. An append has half a dozen of them, whose answers nothing waits for.
    """

    def __init__(self) -> None:
        super().__init__()
        self._unasked = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout == 0 and self._unasked < _UNASKED:
            self._unasked += 1
            return []
        self._unasked = 0
        return super().select(timeout)


def new_append_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop. uvloop takes longer to begin and to stop."""
    return asyncio.SelectorEventLoop(_Selector())
