"""EscrowMQ in an event loop that records its longest turn, to measure stalls.

`python -m bench.turns FILE serve …` runs `escrowmq serve …` on asyncio's own loop. FILE then contains the longest CPU
time that the loop's thread used between two polls of the sockets. All other clients wait at least that long. CPU time
is independent of other load on the machine.
"""

from __future__ import annotations

import asyncio
import mmap
import runpy
import selectors
import sys
import time
from pathlib import Path
from struct import Struct

_LONGEST = Struct("<d")


class LongestTurn:
    """The longest turn (s), in a file that two processes share."""

    def __init__(self, path: Path) -> None:
        """The file is created if it does not exist."""
        if not path.exists():
            path.write_bytes(bytes(mmap.PAGESIZE))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), mmap.PAGESIZE)

    @property
    def seconds(self) -> float:
        """The longest turn since it was last set to zero."""
        longest: float = _LONGEST.unpack_from(self._memory)[0]
        return longest

    @seconds.setter
    def seconds(self, value: float) -> None:
        _LONGEST.pack_into(self._memory, 0, value)


class TimedSelector(selectors.DefaultSelector):
    """Records how long the thread worked between two polls of the sockets."""

    def __init__(self, longest: LongestTurn) -> None:
        super().__init__()
        self._longest = longest
        self._began: float | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self._began is not None:
            turn = time.thread_time() - self._began
            self._longest.seconds = max(self._longest.seconds, turn)
        ready = super().select(timeout)
        self._began = time.thread_time()
        return ready


class TimedPolicy(asyncio.DefaultEventLoopPolicy):
    """Creates event loops that record their turns."""

    def __init__(self, longest: LongestTurn) -> None:
        super().__init__()
        self._longest = longest

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.SelectorEventLoop(TimedSelector(self._longest))


def main(path: Path, arguments: list[str]) -> None:
    """Run an `escrowmq` command in an event loop that records its turns."""
    sys.modules["uvloop"] = None  # type: ignore[assignment]  # asyncio's loop has a selector that can be ours
    asyncio.set_event_loop_policy(TimedPolicy(LongestTurn(path)))
    sys.argv = ["escrowmq", *arguments]
    runpy.run_module("escrowmq", run_name="__main__")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
