"""The lines that administration leaves in the log."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from escrowmq.admin.audit import audited


async def operation(**arguments: Any) -> int:
    if arguments.get("name") == "bad":
        raise ValueError
    return len(arguments)


def test_a_change_that_succeeded_is_logged_without_its_secrets(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    operations = audited({"user.add": operation, "user.list": operation})
    assert asyncio.run(operations["user.add"](name="alice", password="s3cret", tags=["administrator"])) == 3  # type: ignore[arg-type]
    assert asyncio.run(operations["user.list"]()) == 0  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        asyncio.run(operations["user.add"](name="bad"))  # type: ignore[arg-type]
    assert caplog.messages == ["user.add name='alice' tags=['administrator']"]


def test_the_line_names_the_user_who_asked_and_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    operations = audited({"tx.commit": operation})
    assert asyncio.run(operations["tx.commit"](xid="x", by="alice", why="its manager is gone")) == 1  # type: ignore[arg-type]
    assert caplog.messages == ["tx.commit xid='x' by='alice' why='its manager is gone'"]
