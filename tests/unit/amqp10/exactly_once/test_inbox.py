"""The rows of the inbox."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from escrowmq.amqp10.exactly_once.database import Database
from escrowmq.amqp10.exactly_once.inbox import InboxTable


def test_a_tag_is_recorded_once_until_it_is_forgotten(tmp_path: Path) -> None:
    database = Database(tmp_path / "x.db")
    inbox, other = InboxTable(database, "a"), InboxTable(database, "b")
    with database.transaction():
        inbox.record([b"1", b"2"])
        other.record([b"1"])
    assert inbox.tags() == [b"1", b"2"]
    with pytest.raises(sqlite3.IntegrityError), database.transaction():
        inbox.record([b"1"])
    with database.transaction():
        inbox.forget([b"1"])
    assert (inbox.tags(), other.tags()) == ([b"2"], [b"1"])
    database.close()
