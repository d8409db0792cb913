"""Files that say that a broker must not start on a directory with journal files, or not as it was asked to.

They mark a backup, a restore that was cut off, and the copy of a journal that is on a replicated log.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from escrowmq.journal.errors import JournalError

BACKUP: Final = "backup.json"
"""The list of files of a backup."""
RESTORING: Final = "restoring"
"""Exists in a data directory while a backup is restored into it."""


REPLICATED: Final = "replica.epoch"
"""Exists in the data directory of a node whose journal is on a replicated log, as soon as a frame counted."""


class NotADataDir(JournalError):  # noqa: N818 - named for what was found
    """A broker must not start on this directory."""


def check_markers(directory: Path) -> None:
    """Raise NotADataDir if a broker must not start on this directory."""
    if (directory / BACKUP).exists():
        raise NotADataDir(
            f"{directory} is a backup, which a broker would change; restore it with: "
            f"escrowmq restore {directory} --data-dir ANOTHER-DIRECTORY"
        )
    if (directory / RESTORING).exists():
        raise NotADataDir(
            f"the restore into {directory} was cut off, so messages are missing; run `escrowmq restore` again"
        )


def check_alone(directory: Path) -> None:
    """Raise NotADataDir if a broker must not start on this directory without the replicated log of its journal.

    The other nodes do not learn of such a broker, so the log would go on without what it confirmed.
    """
    if (directory / REPLICATED).exists():
        raise NotADataDir(
            f"{directory} belongs to a node of a replicated log; start it with --replicate, or, if that log is gone "
            f"for good, let it go on alone after: escrowmq replica detach --data-dir {directory}"
        )
