"""The HTTP process, as the broker starts it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from escrowmq.config.config import Config
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


def test_a_process_that_another_thread_ends_is_not_reported_and_not_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Process:
        pid, returncode = 4711, None

        def __init__(self) -> None:
            self.killed = asyncio.Event()

        async def wait(self) -> int:
            await self.killed.wait()
            return -9

    started: list[Process] = []

    async def start(*_: object, **__: object) -> Process:
        started.append(Process())
        return started[-1]

    async def scenario() -> None:
        process = http.HttpProcess(Config(data_dir=tmp_path), [])
        assert process.give_up() is None
        process = http.HttpProcess(Config(data_dir=tmp_path), [])
        process.start()
        await asyncio.sleep(0)
        assert process.give_up() == 4711
        started[0].killed.set()
        for _ in range(1000):
            await asyncio.sleep(0)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    monkeypatch.setattr(http, "_FIRST_WAIT", 0.0)
    asyncio.run(scenario())
    assert len(started) == 1
    assert caplog.text == ""
