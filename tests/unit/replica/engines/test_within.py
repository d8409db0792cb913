"""A coroutine ends at its time limit, also one that swallows its cancellation."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from escrowmq.replica.engines.within import within


async def stubborn(times: int, swallowed: list[int]) -> None:
    """Swallow cancellations, so many times."""
    for number in range(times):
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        swallowed.append(number)
    await asyncio.Event().wait()


async def value() -> int:
    return 7


async def failure() -> int:
    raise OSError("reset")


def test_a_result_in_time_is_returned() -> None:
    assert asyncio.run(within(60, value())) == 7


def test_a_failure_in_time_is_raised() -> None:
    with pytest.raises(OSError, match="reset"):
        asyncio.run(within(60, failure()))


@pytest.mark.parametrize("times", [0, 1, 2])
def test_what_swallows_its_cancellation_ends_nevertheless(times: int) -> None:
    swallowed: list[int] = []

    async def run() -> None:
        with pytest.raises(TimeoutError):
            await within(0.001, stubborn(times, swallowed))
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())
    assert len(swallowed) == times
