"""One process keeps the index, however many ask for it at once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from escrowmq.evidence.indexing import Indexer


def test_requests_at_the_same_time_start_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[asyncio.subprocess.Process] = []
    start = asyncio.create_subprocess_exec

    async def counted(*command: str, **options: Any) -> asyncio.subprocess.Process:
        started.append(await start(*command, **options))
        return started[-1]

    async def ask() -> None:
        indexer = Indexer(tmp_path)
        await asyncio.gather(*[indexer.looked() for _ in range(5)])
        for process in started:
            assert process.stdin is not None
            process.stdin.close()
            await process.wait()

    monkeypatch.setattr(asyncio, "create_subprocess_exec", counted)
    asyncio.run(ask())
    assert len(started) == 1


def test_a_process_that_cannot_be_started_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def full(*_: str, **__: Any) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", full)
    indexer = Indexer(tmp_path)
    asyncio.run(indexer.looked())
    assert not indexer.running
    assert "Too many open files" in caplog.text


def test_an_index_that_cannot_grow_says_why(tmp_path: Path) -> None:
    assert Indexer(tmp_path, 1).stopped == ""
    assert "left to the broker" in Indexer(tmp_path, 1 << 60).stopped
    assert Indexer(tmp_path / "none", 1).stopped == ""
