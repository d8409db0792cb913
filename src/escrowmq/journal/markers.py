"""Files that say that a directory with journal files is no data directory: a backup, or a restore that was cut off."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from escrowmq.journal.errors import JournalError

BACKUP: Final = "backup.json"
"""The list of files of a backup."""
RESTORING: Final = "restoring"
"""Exists in a data directory while a backup is restored into it."""


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
