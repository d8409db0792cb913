"""The process that keeps the index. Here, its input has ended, so it ends after the first piece."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from escrowmq.history.index import FOLDER, NAME, MessageIndex
from tests.unit.history.test_following import follow, told, written


def run(folder: Path, reserve: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "escrowmq.history", str(folder), str(reserve)]
    return subprocess.run(command, input="", capture_output=True, text=True, check=False)


def test_the_index_is_made(tmp_path: Path) -> None:
    written(tmp_path, 2).journal.close()
    assert run(tmp_path).returncode == 0
    assert told(tmp_path, "m1") == ["published", "accepted"]


@pytest.mark.parametrize("start", [0, 4096])
def test_a_damaged_index_is_made_again(tmp_path: Path, start: int) -> None:
    written(tmp_path, 2).journal.close()
    follow(tmp_path)
    path = tmp_path / FOLDER / NAME
    path.write_bytes(path.read_bytes()[:start].ljust(path.stat().st_size, b"damage"[:1]))
    done = run(tmp_path)
    assert (done.returncode, "is damaged and is made again" in done.stderr) == (0, True), done.stderr
    assert told(tmp_path, "m1") == ["published", "accepted"]


def test_a_folder_without_a_journal_ends_it_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / FOLDER).touch()
    done = run(tmp_path)
    assert (done.returncode, "cannot be kept up to date" in done.stderr, "Traceback" in done.stderr) == (1, True, False)


def test_an_index_on_a_nearly_full_disk_does_not_grow_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    written(tmp_path, 2).journal.close()
    done = run(tmp_path, reserve=1 << 60)
    assert (done.returncode, "bytes are free on the disk, which are left to the broker" in done.stderr) == (0, True)
    with closing(MessageIndex(tmp_path, read_only=True)) as index:
        assert (index.end_lsn, index.search("m1")) == (0, [])
    assert run(tmp_path).stderr == ""
    assert told(tmp_path, "m1") == ["published", "accepted"]
