"""Where the processes of a simulated machine keep their journal: on one disk, or wherever `make_disks` says."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from escrowmq.journal.journal import Journal
from escrowmq.journal.memory import Faults, MemoryStorage
from escrowmq.journal.writer import JournalSink


class Disks(Protocol):
    """What outlives a process."""

    storage: MemoryStorage
    """The disk of the process that runs, or runs next."""
    sink: JournalSink | None
    failure: str
    """Why the process must end, if that is no fault of its disk."""

    def begin(self) -> None:
        """Prepare for a process that is about to start."""
        ...

    def end(self, journal: Journal, *, power_fails: bool) -> None:
        """Note that the process with this journal has ended."""
        ...

    def resume(self, answers: Callable[[], bool]) -> None:
        """Let the process go on that was there before, if it only seemed to have ended. Raises Violation.

        `answers` asks that process a question, and returns whether it answers before it has synced anything more.
        """
        ...

    def calm(self) -> AbstractContextManager[None]:
        """Return a context in which nothing but planned faults ends the process."""
        ...


class OneDisk:
    """A disk that every process finds again."""

    sink: JournalSink | None = None
    failure = ""

    def __init__(self, seed: int) -> None:
        self.storage = MemoryStorage(random.Random(f"disk {seed}"))

    def begin(self) -> None:
        """Do nothing."""

    def end(self, journal: Journal, *, power_fails: bool) -> None:
        """Lose what is not synced, if power fails, and forget planned faults."""
        if power_fails:
            self.storage.crash()
        self.storage.faults = Faults()

    def resume(self, answers: Callable[[], bool]) -> None:
        """Do nothing: a process that has ended does not go on."""

    def calm(self) -> AbstractContextManager[None]:
        """Do nothing: all faults of this disk are planned."""
        return nullcontext()


make_disks: Callable[[int], Disks] = OneDisk
"""Makes the disks of each machine from now on."""
