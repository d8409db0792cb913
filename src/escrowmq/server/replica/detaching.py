"""Lets a broker go on with its copy of the journal after the replicated log is gone for good."""

from __future__ import annotations

from pathlib import Path

from escrowmq.journal.markers import REPLICATED
from escrowmq.journal.storage import FileStorage
from escrowmq.server.replica.places import NAME


def detach(data_dir: Path) -> bool:
    """Forget that the journal in a data directory was on a replicated log. Return whether it was.

    Raises DataDirLocked while a process has the directory, and OSError.
    """
    if not (data_dir / REPLICATED).exists():
        return False
    storage = FileStorage(data_dir)
    try:
        for name in (NAME, REPLICATED):  # the mark last, so that this can be repeated after it was cut off
            if name in storage.names():
                storage.delete(name)
    finally:
        storage.close()
    return True
