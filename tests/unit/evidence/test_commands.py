"""Commands that the HTTP process starts: one at a time, with their lines."""

from __future__ import annotations

import asyncio
import logging
import sys

import pytest

from escrowmq.evidence import commands
from escrowmq.evidence.commands import CommandRefused, OperatorCommand


def job(script: str, lack: str = "") -> OperatorCommand:
    return OperatorCommand("audit", [sys.executable, "-c", script], lambda: lack, lambda: 1000.0)


async def ended(found: OperatorCommand) -> None:
    assert found._task is not None
    await found._task


def run(found: OperatorCommand) -> OperatorCommand:
    async def whole() -> None:
        await found.start("ann")
        await ended(found)

    asyncio.run(whole())
    return found


def test_a_command_is_run_and_its_lines_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    done = run(job("import sys; print('out', flush=True); print('err', file=sys.stderr); sys.exit(3)"))
    shown = done.shown()
    assert (shown["lines"], shown["status"], shown["running"], shown["by"]) == (["out", "err"], 3, False, "ann")
    assert "audit started by='ann'" in caplog.text


def test_lines_are_bounded_in_number_and_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "_LIMIT", 5000)
    done = run(job("print('x' * 20000)\nfor i in range(300): print(i)\nprint('y' * 2000)"))
    assert len(done.lines) == commands.LINES
    assert done.lines[-1] == "y" * commands.LONGEST_LINE


def test_a_second_run_is_refused_while_the_first_one_runs() -> None:
    async def whole() -> None:
        found = job("import signal; signal.pause()")
        await found.start("ann")
        with pytest.raises(CommandRefused, match="the audit that ann started is still running"):
            await found.start("bob")
        found.stop()
        await ended(found)
        assert not found.running
        assert found.status == -15

    asyncio.run(whole())


def test_a_command_that_lacks_something_is_refused() -> None:
    with pytest.raises(CommandRefused, match="it needs Spark"):
        run(job("", "it needs Spark"))


def test_a_command_that_cannot_be_started_is_refused() -> None:
    with pytest.raises(CommandRefused, match="cannot be started"):
        run(OperatorCommand("backup", ["/nonexistent/command"]))


def test_a_command_can_be_run_again() -> None:
    found = run(job("print(1)"))
    assert list(run(found).lines) == ["1"]
