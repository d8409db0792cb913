"""The files of a running broker's journal, held open so that none disappears while it is copied.

An open file stays readable after the broker has deleted it. So the broker need not know of a backup, and one that is
killed leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
from collections.abc import Collection
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from escrowmq.backup.manifest import BackupError
from escrowmq.journal.format import parse_name

EXTRAS: Final = ("secret-keys",)
"""Files beside the journal that belong to a backup. They are small and do not change."""
_ATTEMPTS: Final = 1000
"""How often files are listed and opened until none has come or gone meanwhile."""


class PinnedFiles:
    """The journal files that exist at one moment after its creation. Use it as a context manager."""

    def __init__(self, directory: Path, copied: Collection[str] = ()) -> None:
        """Open the files, except those in `copied`, which are listed but cannot be read.

        Raises:
            BackupError: The system permits too few open files.
            OSError: The directory or a file cannot be read.
        """
        self._directory = directory
        self._copied = copied
        self._open: dict[str, int] = {}
        self._names: list[str] = []
        try:
            self._pin()
        except OSError as error:
            self.close()
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise BackupError(
                    f"the system permits too few open files (ulimit -n) for the {len(self._listed())} files of the "
                    f"journal in {directory}"
                ) from error
            raise
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the files."""
        while self._open:
            os.close(self._open.popitem()[1])

    def names(self) -> list[str]:
        return self._names

    def size(self, name: str) -> int:
        return os.fstat(self._open[name]).st_size

    def read(self, name: str, offset: int, length: int) -> bytes:
        return os.pread(self._open[name], length, offset)

    def extras(self) -> dict[str, bytes]:
        """Return the contents of the files beside the journal."""
        found = {}
        for name in EXTRAS:
            with contextlib.suppress(FileNotFoundError):
                found[name] = (self._directory / name).read_bytes()
        return found

    def _pin(self) -> None:
        for _ in range(_ATTEMPTS):
            names = self._listed()
            for gone in self._open.keys() - set(names):
                os.close(self._open.pop(gone))
            with contextlib.suppress(FileNotFoundError):  # deleted meanwhile, so it is no longer listed either
                for name in names:
                    if name not in self._open and name not in self._copied:
                        self._open[name] = os.open(self._directory / name, os.O_RDONLY | os.O_CLOEXEC)
            # No name is ever used again, so files that are listed twice existed all the time in between.
            if names == self._listed() and self._open.keys() >= set(names) - set(self._copied):
                self._names = names
                return
        raise BackupError(f"the files in {self._directory} come and go too fast to be listed; try again")

    def _listed(self) -> list[str]:
        return sorted(name for name in os.listdir(self._directory) if parse_name(name))  # noqa: PTH208


def allow_descriptors() -> None:
    """Raise this process's limit of open files as far as the system permits."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
