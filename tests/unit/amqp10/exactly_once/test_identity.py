"""A link keeps its container for ever, and only its latest run may commit."""

from __future__ import annotations

from pathlib import Path

import pytest

from escrowmq.amqp10.errors import LinkStolen
from escrowmq.amqp10.exactly_once.database import Database
from escrowmq.amqp10.exactly_once.identity import Identity


def test_every_run_of_a_link_has_one_container(tmp_path: Path) -> None:
    database = Database(tmp_path / "x.db")
    first, second, other = (Identity(database, name) for name in ("a", "a", "b"))
    assert first.container == second.container != other.container
    database.close()


def test_only_the_latest_run_commits(tmp_path: Path) -> None:
    database = Database(tmp_path / "x.db")
    first, second = Identity(database, "a"), Identity(database, "a")
    with database.transaction():
        second.check()
    with pytest.raises(LinkStolen, match="another process runs it now"), database.transaction():
        first.check()
    database.close()
