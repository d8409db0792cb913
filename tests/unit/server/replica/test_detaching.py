"""A data directory is let go alone, unless a process has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from escrowmq.journal.errors import DataDirLocked
from escrowmq.journal.markers import REPLICATED, check_alone
from escrowmq.journal.storage import FileStorage
from escrowmq.server.replica.detaching import detach
from escrowmq.server.replica.places import NAME


def test_what_belongs_to_the_log_is_deleted_and_nothing_else(tmp_path: Path) -> None:
    for name in (REPLICATED, NAME, "0000000000000000.log"):
        (tmp_path / name).write_text("content")
    assert detach(tmp_path)
    check_alone(tmp_path)
    assert not (tmp_path / NAME).exists()
    assert (tmp_path / "0000000000000000.log").read_text() == "content"
    assert not detach(tmp_path)


def test_the_hints_may_be_missing(tmp_path: Path) -> None:
    (tmp_path / REPLICATED).touch()
    assert detach(tmp_path)


def test_no_directory_is_made(tmp_path: Path) -> None:
    assert not detach(tmp_path / "absent")
    assert not (tmp_path / "absent").exists()


def test_the_directory_of_a_running_process_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / REPLICATED).touch()
    storage = FileStorage(tmp_path)
    with pytest.raises(DataDirLocked):
        detach(tmp_path)
    storage.close()
    assert (tmp_path / REPLICATED).exists()
