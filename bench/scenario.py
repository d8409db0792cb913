"""The parts of a measurement: figures with their targets, and the procedure that yields them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from bench.brokers import RABBITMQ, Broker, EscrowMQ
from bench.measure import MeasureError, Measurement, perf

MB = 1_000_000
BACKLOG = "bench-backlog"
"""The name of the queue that `fill` fills."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the report; targets are for EscrowMQ."""

    name: str
    title: str
    unit: str
    ratio_at_least: float | None = None
    """Median divided by that of the best of the other brokers."""
    ratio_at_most: float | None = None
    at_least: float | None = None
    """The median itself."""
    below: float | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """The duration and the size of measurements."""

    duration: float
    """Seconds of publishing in a rate measurement."""
    scale: float
    """The factor for the size of backlogs."""


class Scenario(ABC):
    """A procedure that yields one or more figures."""

    fresh = False
    """Whether each measurement starts a broker on an empty directory. Otherwise one broker serves all alternations."""
    peers: tuple[str, ...] = (RABBITMQ,)
    """The brokers that EscrowMQ is compared with."""
    alternations: int | None = None
    """The number of alternations, if the user cannot choose it."""
    own: type[EscrowMQ] = EscrowMQ
    """How EscrowMQ is started."""
    timed = False
    """Whether EscrowMQ runs in an event loop that records the longest turn."""

    def __init__(self, name: str, figures: tuple[Figure, ...]) -> None:
        self.name = name
        self.figures = figures

    @abstractmethod
    def measure(self, broker: Broker, settings: Settings) -> Measurement:
        """Measure a running broker. Raises MeasureError or BrokerError."""

    def warm_up(self, broker: Broker, settings: Settings) -> None:
        """Run briefly without measuring, for just-in-time compilers, caches and growing files."""
        perf(broker, "--scenario", self.name, "--duration", str(min(1.5, settings.duration)))


def steadiness(series: list[list[float]]) -> float:
    """Return the publish rate over the last tenth of a run, divided by that over the first (medians of samples)."""
    rates = [
        (now[1] - before[1]) / (now[0] - before[0])
        for before, now in pairwise(series)
        if now[0] - before[0] > 0.05 and now[1] > before[1]
    ]
    tenth = max(len(rates) // 10, 1)
    return median(rates[-tenth:]) / median(rates[:tenth])


def fill(
    broker: Broker, count: int, *options: str, size: int = 100, load: str = "backlog", queue: str = BACKLOG
) -> dict[str, Any]:
    """Publish into a queue without consuming."""
    limits = ("--count", str(count), "--size", str(size), "--deadline", "1500", "--interval", "0.2")
    return perf(broker, "--scenario", load, *limits, "--queue", queue, "--keep", *options)


def restart(broker: Broker, expected: int, *, kill: bool = False) -> float:
    """Return the seconds until the broker is ready again. Raises MeasureError if messages were lost or duplicated."""
    broker.kill() if kill else broker.stop()
    broker.start()
    depth = broker.depth(BACKLOG)
    if depth != expected:
        raise MeasureError(f"{broker.name} holds {depth} messages after the restart, {expected} before")
    return broker.started_in
