"""An index that was damaged while nobody wrote to it is made again as soon as somebody looks."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from escrowmq.admin.http.logins import Operator
from escrowmq.evidence.lives import by_message_id, indexed, lives
from escrowmq.history.index import FOLDER, NAME
from tests.unit.history.test_following import follow, told, written

DAMAGE: dict[str, Callable[[Path], object]] = {
    "bytes that have changed": lambda path: path.write_bytes(path.read_bytes()[:4096].ljust(path.stat().st_size, b"x")),
    "another header": lambda path: path.write_bytes(b"x" * 100 + path.read_bytes()[100:]),
    "a file that was cut off": lambda path: os.truncate(path, 5000),
    "an empty file": lambda path: os.truncate(path, 0),
}


async def ask(_command: str, **_arguments: Any) -> Any:
    raise AssertionError


def found(folder: Path) -> int:
    operator = Operator("a", ("administrator",))
    return len(asyncio.run(lives(folder, by_message_id("m1"), ask, operator)).lives)


def made(folder: Path) -> Path:
    written(folder, 2).journal.close()
    follow(folder)
    assert found(folder) == 1
    return folder / FOLDER / NAME


def age(path: Path) -> None:
    for each in path.parent.glob(f"{NAME}*"):
        os.utime(each, (time.time() - 60,) * 2)


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
@pytest.mark.parametrize("look", [found, lambda folder: asyncio.run(indexed(folder))], ids=["a search", "a look"])
def test_a_damaged_index_is_deleted_and_made_again(
    tmp_path: Path, damage: Callable[[Path], object], look: Callable[[Path], int], caplog: pytest.LogCaptureFixture
) -> None:
    path = made(tmp_path)
    damage(path)
    age(path)
    if look(tmp_path) == 0 and not path.exists():
        assert "cannot be read, and is made again" in caplog.text
    assert found(tmp_path) == 0
    assert not path.exists()
    follow(tmp_path)
    assert told(tmp_path, "m1") == ["published", "accepted"]
    assert found(tmp_path) == 1


def test_an_index_that_is_only_being_made_stays(tmp_path: Path) -> None:
    path = made(tmp_path)
    os.truncate(path, 0)
    assert found(tmp_path) == 0
    assert path.exists()


def test_an_index_that_is_locked_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made(tmp_path)
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", partial(connect, timeout=0.01))
    with closing(connect(path, isolation_level=None)) as other:
        other.execute("pragma journal_mode = delete")
        other.execute("begin exclusive")
        age(path)
        assert found(tmp_path) == 0
        assert path.exists()
    assert found(tmp_path) == 1


def test_without_an_index_nothing_is_found(tmp_path: Path) -> None:
    assert found(tmp_path) == 0
