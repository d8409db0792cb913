"""The HTTP process, as the broker starts it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from escrowmq.config import Config
from escrowmq.server import http


def test_an_http_process_that_cannot_be_started_is_started_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries: list[int] = []

    async def refuse(*_: object, **__: object) -> Any:
        tries.append(1)
        raise OSError(24, "Too many open files")

    async def scenario() -> None:
        process = http.HttpProcess(Config(data_dir=tmp_path), [])
        process.start()
        for _ in range(1000):
            await asyncio.sleep(0)
        await process.stop()

    monkeypatch.setattr(asyncio, "create_subprocess_exec", refuse)
    monkeypatch.setattr(http, "_FIRST_WAIT", 0.0)
    asyncio.run(scenario())
    assert len(tries) > 1
    assert "the HTTP process cannot be started: [Errno 24] Too many open files" in caplog.text
