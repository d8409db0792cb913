"""What administration leaves in the log."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from escrowmq.admin.audit import audited


async def command(**arguments: Any) -> int:
    if arguments.get("name") == "bad":
        raise ValueError
    return len(arguments)


def test_what_was_done_is_told_without_secrets(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    commands = audited({"user.add": command, "user.list": command})
    assert asyncio.run(commands["user.add"](name="alice", password="s3cret", tags=["administrator"])) == 3  # type: ignore[arg-type]
    assert asyncio.run(commands["user.list"]()) == 0  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        asyncio.run(commands["user.add"](name="bad"))  # type: ignore[arg-type]
    assert caplog.messages == ["user.add name='alice' tags=['administrator']"]
