"""A bounded number of events in each iteration of the event loop."""

from __future__ import annotations

import asyncio

import pytest

from escrowmq.server.intake import Intake
from tests.unit.server.benches import on_loop, until


async def by_iteration(done: list[int], most: int) -> list[list[int]]:
    """Return the entries that `done` gains in each iteration until it has `most`."""
    found = [list(done)]
    while len(done) < most:
        before = len(done)
        await asyncio.sleep(0)
        found.append(done[before:])
    return [each for each in found if each]


def test_events_over_the_number_follow_in_order_so_many_in_each_iteration() -> None:
    async def test() -> None:
        intake, done = Intake(asyncio.get_running_loop(), 3), list[int]()
        for event in range(8):
            if intake.admit():
                done.append(event)
            else:
                intake.defer(lambda event=event: done.append(event))  # type: ignore[misc]
        assert await by_iteration(done, 8) == [[0, 1, 2], [3, 4, 5], [6, 7]]

    on_loop(test)


def test_no_event_is_admitted_before_deferred_ones() -> None:
    async def test() -> None:
        intake, done = Intake(asyncio.get_running_loop(), 2), list[int]()
        for event in range(4):
            intake.defer(lambda event=event: done.append(event))  # type: ignore[misc]
        found = []
        for _ in range(4):
            await asyncio.sleep(0)
            found.append((list(done), intake.admit()))
        assert found[0] == ([0, 1], False)
        assert found[1] == ([0, 1, 2, 3], False)
        assert found[3] == ([0, 1, 2, 3], True)

    on_loop(test)


def test_an_event_that_fails_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        loop, done = asyncio.get_running_loop(), list[bool]()
        faults: list[dict[str, object]] = []
        loop.set_exception_handler(lambda _, context: faults.append(context))
        intake = Intake(loop, 2)
        intake.defer(lambda: done[0])  # type: ignore[arg-type]
        intake.defer(lambda: done.append(True))
        await until(lambda: done)
        assert len(faults) == 1

    on_loop(test)


def test_an_event_that_defers_another_one_leaves_it_to_a_later_iteration() -> None:
    async def test() -> None:
        intake, done = Intake(asyncio.get_running_loop(), 5), list[int]()

        def work() -> None:
            done.append(len(done))
            if len(done) < 3:
                intake.defer(work)

        intake.defer(work)
        assert await by_iteration(done, 3) == [[0], [1], [2]]

    on_loop(test)


@pytest.mark.rule("FAIR-1")
def test_an_event_may_count_as_several() -> None:
    async def test() -> None:
        intake, done = Intake(asyncio.get_running_loop(), 8), list[int]()
        for event in range(6):
            if intake.admit(4):
                done.append(event)
            else:
                intake.defer(lambda event=event: done.append(event), 4)  # type: ignore[misc]
        assert await by_iteration(done, 6) == [[0, 1], [2, 3], [4, 5]]

    on_loop(test)
