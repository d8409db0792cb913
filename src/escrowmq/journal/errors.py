"""The journal's errors. Their texts are for the operator."""

from __future__ import annotations

from escrowmq.core.records.unreadable import LogUnreadable


class JournalError(Exception):
    """The base of all errors of this package."""


class JournalDamaged(JournalError, LogUnreadable):  # noqa: N818 - named after the event
    """The journal is damaged in a place that is not the tail of the log (DUR-3), so starting would lose the data after
    it.

    `file` is the name in the data directory, `offset` the byte in it, `why` a text without file and offset.
    """

    def __init__(self, file: str, offset: int, why: str) -> None:
        super().__init__(f"journal damaged: {file} at offset {offset}: {why}")
        self.file = file
        self.offset = offset
        self.why = why


class JournalUnreadable(JournalError, LogUnreadable):  # noqa: N818 - named after the event
    """The system cannot read a part of the journal, although it was asked several times."""


class JournalVersionUnknown(JournalError):  # noqa: N818 - named after the event
    """A file has a newer format version than this program supports."""

    def __init__(self, file: str, version: int, known: int) -> None:
        super().__init__(f"{file} has journal format version {version}; this program reads versions up to {known}")
        self.file = file
        self.version = version


class JournalFailed(JournalError):  # noqa: N818 - named after the event
    """A write or sync failed, so the journal accepts no more records (DUR-2). A restart recovers from the disk."""


class JournalFull(JournalFailed):
    """There was no space for the next batch. Nothing in that batch has been confirmed."""


class SnapshotFailed(JournalError):  # noqa: N818 - named after the event
    """A snapshot could not be written. The log is not affected; a later snapshot starts over."""


class DataDirLocked(JournalError):  # noqa: N818 - named after the event
    """Another process is using this data directory."""

    def __init__(self, directory: str, pid: str) -> None:
        holder = f"process {pid}" if pid else "another process"
        super().__init__(
            f"data directory {directory} is in use by {holder}; stop that process, or choose another --data-dir"
        )
        self.directory = directory
        self.pid = pid
