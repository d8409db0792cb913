"""Few requests are answered at the same time, and users take turns."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

import pytest

from escrowmq.admin.http.turns import RequestTurns


class Bench:
    """Requests by name of their user and number; `running` are those that have their turn."""

    def __init__(self, most: int = 3, most_of_user: int = 2) -> None:
        self.turns = RequestTurns(most, most_of_user)
        self.running: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._ends: dict[str, asyncio.Event] = {}

    async def ask(self, *names: str) -> Sequence[str]:
        for name in names:
            self._ends[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._run(name))
            await asyncio.sleep(0)
        return self.running

    async def end(self, *names: str) -> Sequence[str]:
        for name in names:
            self._ends[name].set()
            with contextlib.suppress(asyncio.CancelledError):
                await self.tasks[name]
            await asyncio.sleep(0)
        return self.running

    async def _run(self, name: str) -> None:
        async with self.turns.turn(name[0]):
            self.running.append(name)
            await self._ends[name].wait()
        self.running.remove(name)


@pytest.mark.rule("FAIR-3")
def test_a_user_has_a_few_turns_at_once_and_its_further_requests_wait_in_order() -> None:
    async def scenario() -> None:
        bench = Bench()
        assert await bench.ask("a1", "a2", "a3", "a4") == ["a1", "a2"]
        assert await bench.ask("b1") == ["a1", "a2", "b1"]
        assert await bench.end("a2") == ["a1", "b1", "a3"]
        assert await bench.end("a1") == ["b1", "a3", "a4"]
        assert await bench.end("b1", "a3", "a4") == []

    asyncio.run(scenario())


@pytest.mark.rule("FAIR-3")
def test_users_whose_requests_wait_take_turns() -> None:
    async def scenario() -> None:
        bench = Bench(most=1)
        assert await bench.ask("a1", "a2", "a3", "b1", "c1") == ["a1"]
        for name, following in (("a1", "a2"), ("a2", "b1"), ("b1", "c1"), ("c1", "a3")):
            assert await bench.end(name) == [following]

    asyncio.run(scenario())


def test_a_request_that_is_given_up_leaves_its_turn_to_others() -> None:
    async def scenario() -> None:
        bench = Bench(most=1)
        await bench.ask("a1", "a2", "b1", "c1")
        bench.tasks["a2"].cancel()
        assert await bench.end("a1") == ["b1"]
        assert await bench.end("b1") == ["c1"]

    asyncio.run(scenario())


def test_a_request_that_is_given_up_just_when_it_gets_its_turn_leaves_it_to_others() -> None:
    async def scenario() -> None:
        turns = RequestTurns(1, 1)

        async def hold() -> None:
            async with turns.turn("b"):
                await asyncio.Event().wait()

        async with turns.turn("a"):
            waiting = asyncio.create_task(hold())
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        async with asyncio.timeout(5), turns.turn("c"):
            pass

    asyncio.run(scenario())
