"""The texts that an operator sees."""

from __future__ import annotations

from escrowmq.journal.errors import (
    DataDirLocked,
    JournalDamaged,
    JournalError,
    JournalFailed,
    JournalFull,
    JournalVersionUnknown,
)


def test_damage_names_file_offset_and_reason() -> None:
    error = JournalDamaged("00.log", 64, "the checksum does not match")
    assert str(error) == "journal damaged: 00.log at offset 64: the checksum does not match"
    assert (error.file, error.offset, error.why) == ("00.log", 64, "the checksum does not match")


def test_unknown_version_names_both_versions() -> None:
    assert str(JournalVersionUnknown("00.log", 9, 1)) == (
        "00.log has journal format version 9; this program reads versions up to 1"
    )


def test_lock_names_directory_and_process() -> None:
    assert "data directory /d is in use by process 42" in str(DataDirLocked("/d", "42"))
    assert "another process" in str(DataDirLocked("/d", ""))


def test_a_full_disk_is_a_journal_failure() -> None:
    assert issubclass(JournalFull, JournalFailed)
    assert issubclass(JournalFailed, JournalError)
