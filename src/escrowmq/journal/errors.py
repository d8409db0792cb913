"""What can go wrong with a journal, as exceptions with a text for the operator."""

from __future__ import annotations


class JournalError(Exception):
    """Base of all errors of this layer."""


class JournalDamaged(JournalError):  # noqa: N818 - named for what happened
    """Bytes that must be whole are not, and not at the tail of the log (DUR-3): starting would lose what follows.

    `file` is the name inside the data directory, `offset` the byte in it, `why` a sentence without file and offset.
    """

    def __init__(self, file: str, offset: int, why: str) -> None:
        super().__init__(f"journal damaged: {file} at offset {offset}: {why}")
        self.file = file
        self.offset = offset
        self.why = why


class JournalVersionUnknown(JournalError):  # noqa: N818 - named for what happened
    """A file was written by a newer version of the format than this program knows."""

    def __init__(self, file: str, version: int, known: int) -> None:
        super().__init__(f"{file} has journal format version {version}; this program reads version {known} and older")
        self.file = file
        self.version = version


class JournalFailed(JournalError):  # noqa: N818 - named for what happened
    """A write or sync failed; the journal takes nothing more (DUR-2). Recover from what is on disk by starting anew."""


class JournalFull(JournalFailed):
    """There was no space for the next batch; nothing of it can have been answered."""


class SnapshotFailed(JournalError):  # noqa: N818 - named for what happened
    """A snapshot could not be written. The log is untouched; a later snapshot starts from nothing."""


class DataDirLocked(JournalError):  # noqa: N818 - named for what happened
    """Another process serves this data directory."""

    def __init__(self, directory: str, pid: str) -> None:
        holder = f"process {pid}" if pid else "another process"
        super().__init__(f"data directory {directory} is in use by {holder}; stop it, or choose another --data-dir")
        self.directory = directory
        self.pid = pid
