"""The process that keeps the index up to date: `python -m escrowmq.history DIR [RESERVE]`. It ends when its input ends.

While the disk has less than `RESERVE` free bytes, the index does not grow.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import sqlite3
import sys
from pathlib import Path
from typing import Final

from escrowmq import logs
from escrowmq.history.following import bring_up_to_date, written_at
from escrowmq.history.index import MessageIndex, discard
from escrowmq.history.room import is_short
from escrowmq.journal.errors import JournalDamaged, JournalVersionUnknown

SECONDS: Final = 1.0
"""The time between two looks at the journal."""
CALMER: Final = 1.1
"""The share of the reserve above which the index grows again, so that it does not stop and go on all the time."""
_STOPS: Final = "stops: fewer than %d bytes are free on the disk, which are left to the broker"
_log = logging.getLogger("escrowmq.http")


def follow(folder: Path, reserve: int = 0) -> None:
    """Keep the index of the journal in `folder` up to date until standard input ends. A damaged index is made again,
    once: it is written without syncs, so a power cut can damage it.
    """
    try:
        _follow(folder, reserve)
    except sqlite3.DatabaseError as error:
        if type(error) is not sqlite3.DatabaseError:  # a full disk, for example, is a subclass
            raise
        _log.warning("the index of messages is damaged and is made again: %s", error)
    else:
        return
    discard(folder)
    _follow(folder, reserve)


def _follow(folder: Path, reserve: int) -> None:
    known: dict[str, int] | None = None
    stopped = False
    index = MessageIndex(folder)
    try:
        while True:
            if not index.in_place:
                index.close()
                index, known = MessageIndex(folder), None
            short = is_short(folder, int(reserve * CALMER) if stopped else reserve)
            if short != stopped:
                stopped = short
                _log.warning(
                    "the index of messages %s", _STOPS % reserve if short else "goes on: the disk has room again"
                )
            written = written_at(folder)
            if written != known and not short:
                known = written if _bring_up_to_date(folder, index, reserve) else None
            if _ended(SECONDS):
                return
    finally:
        index.close()


def _bring_up_to_date(folder: Path, index: MessageIndex, reserve: int) -> bool:
    """Return whether the index has reached the end of the journal. It stops before that if the input has ended, or if
    the disk is short of room.
    """
    return not any(_ended(0) or is_short(folder, reserve) for _ in bring_up_to_date(folder, index))


def main() -> int:
    """Follow the journal with only the processor time that nothing else wants. Return an exit code."""
    logs.configure("info", "text")
    with contextlib.suppress(OSError, AttributeError):
        os.nice(19)
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    try:
        follow(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    except (OSError, sqlite3.Error, JournalDamaged, JournalVersionUnknown) as error:
        _log.warning("the index of messages cannot be kept up to date: %s", error)
        return 1
    return 0


def _ended(seconds: float) -> bool:
    readable, _, _ = select.select([sys.stdin], [], [], seconds)
    return bool(readable) and not os.read(sys.stdin.fileno(), 1)


if __name__ == "__main__":
    sys.exit(main())
