"""Journal files that are held open while they are copied."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from escrowmq.backup.manifest import BackupError
from escrowmq.backup.source import PinnedFiles

FIRST, SECOND = "0000000000000000.log", "0000000000000100.log"


def test_a_file_that_is_deleted_stays_readable(tmp_path: Path) -> None:
    (tmp_path / FIRST).write_bytes(b"abc")
    with PinnedFiles(tmp_path) as files:
        (tmp_path / FIRST).unlink()
        assert files.names() == [FIRST]
        assert files.size(FIRST) == 3
        assert files.read(FIRST, 1, 9) == b"bc"


def test_only_files_of_the_journal_are_listed(tmp_path: Path) -> None:
    for name in (FIRST, "lock", "0000000000000000.log.tmp", "admin.sock", "0000000000000007.snapshot"):
        (tmp_path / name).touch()
    with PinnedFiles(tmp_path) as files:
        assert files.names() == [FIRST, "0000000000000007.snapshot"]


def test_files_that_are_copied_are_listed_but_not_opened(tmp_path: Path) -> None:
    (tmp_path / FIRST).touch()
    (tmp_path / SECOND).touch()
    before = len(os.listdir("/proc/self/fd"))
    with PinnedFiles(tmp_path, {FIRST}) as files:
        assert files.names() == [FIRST, SECOND]
        assert len(os.listdir("/proc/self/fd")) == before + 1
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_that_goes_while_the_others_are_opened_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The set is that of one moment: after a change, the files are listed again."""
    (tmp_path / FIRST).touch()
    (tmp_path / SECOND).touch()
    real = os.open

    def opened(path: Any, *rest: Any, **more: Any) -> int:
        descriptor = real(path, *rest, **more)
        if Path(path).name == SECOND and (tmp_path / FIRST).exists():
            (tmp_path / FIRST).unlink()
            (tmp_path / "0000000000000200.log").touch()
        return descriptor

    monkeypatch.setattr(os, "open", opened)
    with PinnedFiles(tmp_path) as files:
        assert files.names() == [SECOND, "0000000000000200.log"]


def test_too_few_descriptors_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / FIRST).touch()

    def refuse(path: Path, flags: int) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(BackupError, match="too few open files"):
        PinnedFiles(tmp_path)


def test_files_beside_the_journal_are_read_if_they_exist(tmp_path: Path) -> None:
    with PinnedFiles(tmp_path) as files:
        assert files.extras() == {}
        (tmp_path / "secret-keys").write_bytes(b"x")
        assert files.extras() == {"secret-keys": b"x"}
