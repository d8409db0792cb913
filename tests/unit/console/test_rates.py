"""Rates are differences of samples; sampling lasts as long as somebody looks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from escrowmq.admin.http.broker import BrokerUnavailable
from escrowmq.console import rates
from escrowmq.console.rates import LOOKED_SECONDS, SAMPLES, Rates, RateSample


class Broker:
    """Answers with counters that have grown by ten at each question, but not at first."""

    asked = 0

    async def ask(self, command: str, **arguments: Any) -> Any:
        del arguments
        if command == "status":
            self.asked += 1
            if self.asked == 1:
                raise BrokerUnavailable("not yet")
            return {"journal": {"syncs": self.asked, "sync_us_total": self.asked * 500}}
        row = dict.fromkeys(("arrived", "delivered", "acknowledged", "ready", "unsettled"), self.asked * 10)
        return {"vhosts": {"/": row, "v": row}}


async def until(condition: Callable[[], bool]) -> None:
    """Let other tasks run until the condition holds."""
    while not condition():  # noqa: ASYNC110 - there is no event to await
        await asyncio.sleep(0)


def sample(time: float, published: int, syncs: int = 0, sync_us: int = 0) -> RateSample:
    return RateSample(time, published, 0, 0, 5, 6, syncs, sync_us)


def test_a_rate_is_the_difference_of_two_samples() -> None:
    made = Rates(Broker())
    for each in (sample(10, 100), sample(15, 150, 2, 3000), sample(20, 150, 2, 3000)):
        made.add(each)
    found = made.series()
    assert (found["time"], found["published"], found["ready"]) == ([15, 20], [10, 0], [5, 5])
    assert found["sync_ms"] == [1.5, None]


def test_samples_of_a_former_broker_are_dropped() -> None:
    made = Rates(Broker())
    for each in (sample(10, 100), sample(15, 150), sample(20, 3), sample(25, 8)):
        made.add(each)
    assert made.series()["published"] == [1]


def test_the_samples_are_bounded() -> None:
    made = Rates(Broker())
    for number in range(SAMPLES + 10):
        made.add(sample(number, number))
    assert len(made.series()["time"]) == SAMPLES - 1


def test_sampling_lasts_while_somebody_looks_and_survives_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "SECONDS", 0)
    broker = Broker()
    now = 0.0
    made = Rates(broker, lambda: now)

    async def look() -> None:
        nonlocal now
        made.looked()
        await until(lambda: len(made.series()["time"]) >= 3)
        assert all(made.series()["published"])
        now += LOOKED_SECONDS
        await until(lambda: not made.series()["time"])
        asked = broker.asked
        for _ in range(20):
            await asyncio.sleep(0)
        assert broker.asked == asked

    asyncio.run(asyncio.wait_for(look(), 60))
