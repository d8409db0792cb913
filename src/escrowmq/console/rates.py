"""Rates of the broker over the last half hour, sampled while somebody looks at the console."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, Final, NamedTuple

from escrowmq.admin.http.broker import AskedBroker, BrokerRefused, BrokerUnavailable

SECONDS: Final = 5.0
"""The time between two samples."""
SAMPLES: Final = 360
LOOKED_SECONDS: Final = 600.0
"""Sampling ends when nobody has looked for so long."""


class RateSample(NamedTuple):
    """The broker's counters at a time, in seconds since the epoch."""

    time: float
    published: int
    delivered: int
    acknowledged: int
    ready: int
    unsettled: int
    syncs: int
    sync_us: int


def sampled(now: float, status: Mapping[str, Any], totals: Mapping[str, Any]) -> RateSample:
    """Return a sample of the operations `status` and `counter.totals`."""
    vhosts = totals["vhosts"].values()
    journal = status["journal"]
    return RateSample(
        now,
        sum(each["arrived"] for each in vhosts),
        sum(each["delivered"] for each in vhosts),
        sum(each["acknowledged"] for each in vhosts),
        sum(each["ready"] for each in vhosts),
        sum(each["unsettled"] for each in vhosts),
        journal["syncs"],
        journal["sync_us_total"],
    )


class Rates:
    """Keeps the samples. `clock` returns seconds since the epoch."""

    def __init__(self, broker: AskedBroker, clock: Callable[[], float] = time.time) -> None:
        self._broker = broker
        self._clock = clock
        self._samples: deque[RateSample] = deque(maxlen=SAMPLES)
        self._looked = 0.0
        self._task: asyncio.Task[None] | None = None

    def looked(self) -> None:
        """Note that somebody looks at the rates, and sample them from now on."""
        self._looked = self._clock()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    def add(self, sample: RateSample) -> None:
        """Keep a sample. Counters begin again with the broker; the samples before that are dropped."""
        if self._samples and sample.published < self._samples[-1].published:
            self._samples.clear()
        self._samples.append(sample)

    def series(self) -> dict[str, list[float | None]]:
        """Return columns for a plot: times, messages each second, depths, and the mean time of a sync in ms."""
        found: dict[str, list[float | None]] = {
            name: [] for name in ("time", "published", "delivered", "acknowledged", "ready", "unsettled", "sync_ms")
        }
        for before, after in pairwise(self._samples):
            seconds = max(after.time - before.time, 0.001)
            syncs = after.syncs - before.syncs
            found["time"].append(round(after.time, 1))
            for name in ("published", "delivered", "acknowledged"):
                found[name].append(round((getattr(after, name) - getattr(before, name)) / seconds, 1))
            found["ready"].append(after.ready)
            found["unsettled"].append(after.unsettled)
            found["sync_ms"].append(round((after.sync_us - before.sync_us) / syncs / 1000, 3) if syncs else None)
        return found

    async def _run(self) -> None:
        while self._clock() - self._looked < LOOKED_SECONDS:
            with contextlib.suppress(BrokerUnavailable, BrokerRefused):
                status, totals = await self._broker.ask("status"), await self._broker.ask("counter.totals")
                self.add(sampled(self._clock(), status, totals))
            await asyncio.sleep(SECONDS)
        self._samples.clear()
