"""Standbys of a log in memory, with their files in a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from escrowmq.journal.storage import FileStorage
from escrowmq.replica.leader import Leader
from escrowmq.replica.tail import LogTail
from escrowmq.server.replica.follower import Follower
from tests.unit.replica.logs import Copy, Log

_storages: list[FileStorage] = []


@contextmanager
def closing() -> Iterator[None]:
    """Close the files of each standby at the end, which are many."""
    yield
    while _storages:
        _storages.pop().close()


def close_newest() -> None:
    """Close the files of the newest standby, so that another one can have them."""
    _storages.pop().close()


def standby(log: Log, folder: Path, *, lease: float = 0.5, disk_limit: int = 0) -> Follower:
    """Return the standby n1 with these files."""
    _storages.append(FileStorage(folder))
    return Follower(
        *(log, "the log", _storages[-1], "n1", "amqp://n1", lease), chain_contents=False, disk_limit=disk_limit
    )


def led_by_another(log: Log, url: str = "") -> Leader:
    """Let the node n2 lead."""
    leader = Leader(log, LogTail(log, Copy()), "n2", url, lambda: os.urandom(16))
    assert leader.take_over()
    return leader


def read(follower: Follower) -> None:
    """Let a standby whose thread does not run read the log to its end."""
    if follower._following.read_to_end():
        follower._candidate.heard()
