"""Directories on which no broker may start, or not alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from escrowmq.journal.markers import BACKUP, REPLICATED, RESTORING, NotADataDir, check_alone, check_markers


@pytest.mark.parametrize(("name", "text"), [(BACKUP, "is a backup"), (RESTORING, "was cut off")])
def test_a_marker_forbids_a_start(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(NotADataDir, match=text):
        check_markers(tmp_path)


def test_any_other_directory_is_allowed(tmp_path: Path) -> None:
    check_markers(tmp_path)
    check_markers(tmp_path / "new")
    check_alone(tmp_path)
    check_alone(tmp_path / "new")


def test_a_broker_does_not_start_alone_on_what_belongs_to_a_replicated_log(tmp_path: Path) -> None:
    (tmp_path / REPLICATED).touch()
    check_markers(tmp_path)
    with pytest.raises(NotADataDir, match=f"--replicate.* escrowmq replica detach --data-dir {tmp_path}"):
        check_alone(tmp_path)
