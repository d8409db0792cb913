"""Directories on which no broker may start."""

from __future__ import annotations

from pathlib import Path

import pytest

from escrowmq.journal.markers import BACKUP, RESTORING, NotADataDir, check_markers


@pytest.mark.parametrize(("name", "text"), [(BACKUP, "is a backup"), (RESTORING, "was cut off")])
def test_a_marker_forbids_a_start(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(NotADataDir, match=text):
        check_markers(tmp_path)


def test_any_other_directory_is_allowed(tmp_path: Path) -> None:
    check_markers(tmp_path)
    check_markers(tmp_path / "new")
