"""What is measured, how, and which figure each must reach."""

from __future__ import annotations

import subprocess
from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from bench.audits import measured as audited
from bench.brokers import Broker
from bench.measure import MeasureError, Measurement, details, perf, sync_rate
from bench.spark_link import measured

MB = 1_000_000
_QUEUE = "bench-backlog"


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the report; targets are for EscrowMQ."""

    name: str
    title: str
    unit: str
    ratio_at_least: float | None = None
    """Median divided by RabbitMQ's median."""
    ratio_at_most: float | None = None
    at_least: float | None = None
    """The median itself."""
    below: float | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """How long and how much."""

    duration: float
    """Seconds of publishing in a rate measurement."""
    scale: float
    """Backlogs are so many times their full size."""


class Scenario(ABC):
    """A procedure that yields one or more figures."""

    fresh = False
    """Whether each measurement starts its own broker on an empty directory; else one serves all alternations."""
    escrowmq_only = False
    alternations: int | None = None
    """How many, if it is not for the user to say."""

    def __init__(self, name: str, figures: tuple[Figure, ...]) -> None:
        self.name = name
        self.figures = figures

    @abstractmethod
    def measure(self, broker: Broker, settings: Settings) -> Measurement:
        """Measure a broker that runs. Raises MeasureError, or BrokerError."""

    def warm_up(self, broker: Broker, settings: Settings) -> None:
        """Run briefly without counting: just-in-time compilers, caches and files that grow need it."""
        perf(broker, "--scenario", self.name, "--duration", str(min(1.5, settings.duration)))


class Rate(Scenario):
    """A rate under a steady load, by the named scenario of the load tool."""

    def __init__(self, name: str, title: str, target: float | None, rate: str = "deliver") -> None:
        super().__init__(name, (Figure(name, title, "messages/s", ratio_at_least=target),))
        self._rate = rate

    def measure(self, broker: Broker, settings: Settings) -> Measurement:
        result = perf(broker, "--scenario", self.name, "--duration", str(settings.duration))
        return Measurement({self.name: result["rates"][self._rate]}, details(result))


class Latency(Scenario):
    """Publish to deliver at a fixed rate."""

    def __init__(self) -> None:
        super().__init__(
            "latency",
            (
                Figure("latency", "latency at 5,000 persistent confirmed/s, p99", "ms", ratio_at_most=1.0),
                Figure("latency.p50", "— p50", "ms"),
            ),
        )

    def measure(self, broker: Broker, settings: Settings) -> Measurement:
        result = perf(broker, "--scenario", "latency", "--duration", str(settings.duration))
        latency = result["latency_us"]
        return Measurement({"latency": latency["p99"] / 1000, "latency.p50": latency["p50"] / 1000}, details(result))


class Branches(Scenario):
    """Distributed transactions of one publish each, beside `tx` and the syncs that the disk gives meanwhile."""

    escrowmq_only = True

    def __init__(self) -> None:
        super().__init__(
            "xa",
            (
                Figure("xa.one-phase", "dtx, one-phase, one branch at a time", "commits/s"),
                Figure("xa.one-phase-by-tx", "— by the rate of tx of 1", ""),
                Figure("xa.two-phase", "dtx, two-phase, one branch at a time", "commits/s"),
                Figure("xa.two-phase-share", "— by half the syncs/s of the disk", ""),
                Figure("xa.concurrent", "dtx, two-phase, 32 branches at once", "commits/s"),
                Figure("xa.per-sync", "— branches for each sync", "", at_least=10),
            ),
        )

    def measure(self, broker: Broker, settings: Settings) -> Measurement:
        duration = str(settings.duration / 2)
        results = {
            name: perf(broker, "--scenario", name, "--duration", duration)
            for name in ("tx1", "xa1-one-phase", "xa1", "xa32")
        }
        rates = {name: result["rates"]["confirm"] for name, result in results.items()}
        syncs = sync_rate(broker.directory, 0.5)
        kept = {name: details(result) for name, result in results.items()}
        figures = {
            "xa.one-phase": rates["xa1-one-phase"],
            "xa.one-phase-by-tx": rates["xa1-one-phase"] / rates["tx1"],
            "xa.two-phase": rates["xa1"],
            "xa.two-phase-share": rates["xa1"] / (syncs / 2),
            "xa.concurrent": rates["xa32"],
            "xa.per-sync": kept["xa32"].get("commits_per_sync", 0.0),
        }
        return Measurement(figures, kept)

    def warm_up(self, broker: Broker, settings: Settings) -> None:
        perf(broker, "--scenario", "xa32", "--duration", str(min(1.5, settings.duration)))


class Backlog(Scenario):
    """A million messages of 1 kB wait: memory, and how long a restart takes, in an orderly way and after kill -9."""

    fresh = True

    def __init__(self) -> None:
        super().__init__(
            "backlog",
            (
                Figure("backlog.memory", "memory, 1,000,000 persistent of 1 kB waiting", "MB", None, 1.0, below=250),
                Figure("backlog.memory-peak", "— peak while they came", "MB"),
                Figure("backlog.publish", "— publish rate, confirmed", "messages/s"),
                Figure("backlog.restart", "restart with them until ready", "s", below=5),
                Figure("backlog.restart-killed", "— after kill -9", "s", below=5),
                Figure("backlog.drain", "— then consumed, acked", "messages/s"),
            ),
        )

    def measure(self, broker: Broker, settings: Settings) -> Measurement:
        count = int(1_000_000 * settings.scale)
        result = _fill(broker, count, size=1000)
        broker.settle()
        figures = {
            "backlog.memory": broker.resident_bytes() / MB,
            "backlog.memory-peak": broker.peak_resident_bytes() / MB,
            "backlog.publish": result["rates"]["publish"],
            "backlog.restart": _restart(broker, count, kill=False),
            "backlog.restart-killed": _restart(broker, count, kill=True),
        }
        figures["backlog.drain"] = perf(broker, "--producers", "0", "--queue", _QUEUE)["rates"]["deliver"]
        return Measurement(figures, details(result))


class History(Scenario):
    """Ten million messages have gone through, a thousand are left; and the same thousand without the past."""

    fresh = True
    escrowmq_only = True
    alternations = 1

    def __init__(self) -> None:
        super().__init__(
            "history",
            (
                Figure("history.restart", "restart, 10,000,000 went through, 1,000 left", "s", below=5),
                Figure("history.restart-killed", "— after kill -9", "s", below=5),
                Figure("history.restart-without", "— without that history", "s"),
                Figure("history.through", "— rate at which they went through", "messages/s"),
            ),
        )

    def measure(self, broker: Broker, settings: Settings) -> Measurement:
        _fill(broker, 1000, size=100)
        without = _restart(broker, 1000, kill=False)
        # Through a queue of its own, so that the thousand stay where they are: at the oldest end of the journal.
        count = int(10_000_000 * settings.scale)
        result = perf(broker, "--scenario", "confirms", "--count", str(count), "--deadline", "1500")
        broker.settle()
        figures = {
            "history.restart": _restart(broker, 1000, kill=False),
            "history.restart-killed": _restart(broker, 1000, kill=True),
            "history.restart-without": without,
            "history.through": result["rates"]["deliver"],
        }
        return Measurement(figures, details(result))


class LongBacklog(Scenario):
    """Ten million messages of 100 B wait: memory, and whether the publish rate holds."""

    fresh = True
    escrowmq_only = True
    alternations = 1

    def __init__(self) -> None:
        super().__init__(
            "long-backlog",
            (
                Figure("long-backlog.memory", "memory, 10,000,000 persistent of 100 B waiting", "MB", below=800),
                Figure("long-backlog.memory-peak", "— peak while they came", "MB", below=800),
                Figure("long-backlog.publish", "— publish rate, confirmed", "messages/s"),
                Figure("long-backlog.steady", "— rate of the last tenth by that of the first", "", at_least=0.8),
                Figure("long-backlog.restart", "— restart with them until ready", "s"),
                Figure("long-backlog.drain", "— then consumed, acked", "messages/s"),
            ),
        )

    def measure(self, broker: Broker, settings: Settings) -> Measurement:
        count = int(10_000_000 * settings.scale)
        result = _fill(broker, count, size=100)
        broker.settle()
        figures = {
            "long-backlog.memory": broker.resident_bytes() / MB,
            "long-backlog.memory-peak": broker.peak_resident_bytes() / MB,
            "long-backlog.publish": result["rates"]["publish"],
            "long-backlog.steady": steadiness(result["series"]),
            "long-backlog.restart": _restart(broker, count, kill=False),
        }
        figures["long-backlog.drain"] = perf(broker, "--producers", "0", "--queue", _QUEUE)["rates"]["deliver"]
        return Measurement(figures, {**details(result), "series": result["series"]})


class SparkLink(Scenario):
    """Spark reads a queue, writes one, and moves messages from one to the other, beside Spark without a broker."""

    fresh = True
    escrowmq_only = True

    def __init__(self) -> None:
        super().__init__(
            "spark",
            (
                Figure("spark.read", "Spark local[2], 200 B: queue read, all columns", "messages/s", at_least=150_000),
                Figure("spark.read_twin", "— Spark's own rows instead", "messages/s"),
                Figure("spark.write", "— queue written, one transaction", "messages/s", at_least=100_000),
                Figure("spark.through", "— queue to queue, exactly once", "messages/s", at_least=50_000),
                Figure("spark.through_twin", "— Spark's rate source to its no-op sink", "messages/s"),
                Figure("spark.trigger", "— a trigger with 10 messages", "ms", below=500),
                Figure("spark.trigger_twin", "— the same, rate source to no-op sink", "ms"),
            ),
        )

    def measure(self, broker: Broker, settings: Settings) -> Measurement:
        try:
            found = measured(broker.url, int(1_000_000 * max(settings.scale, 0.4)))
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            raise MeasureError(f"spark: {error}") from error
        return Measurement({f"spark.{name}": value for name, value in found.items()})


class JournalAudit(Scenario):
    """The audit reads ten million messages, and half as many; and goes on beside a broker under load."""

    fresh = True
    escrowmq_only = True
    alternations = 1

    def __init__(self) -> None:
        super().__init__(
            "audit",
            (
                Figure(
                    "audit.rate", "audit of 10,000,000 messages, from start to verdict", "messages/s", at_least=100_000
                ),
                Figure("audit.twice", "— time by that for half of them", "", below=2.1),
                Figure("audit.memory", "— memory, all its processes", "MB"),
                Figure("audit.memory-twice", "— memory by that for half of them", "", below=1.2),
                Figure("audit.broker-share", "— confirms beside an audit by those without", "", at_least=0.9),
            ),
        )

    def measure(self, broker: Broker, settings: Settings) -> Measurement:
        return Measurement(audited(broker, int(10_000_000 * max(settings.scale, 0.2)), settings.duration))


def steadiness(series: list[list[float]]) -> float:
    """The publish rate over the last tenth of a run divided by that over the first; each the median of its samples."""
    rates = [
        (now[1] - before[1]) / (now[0] - before[0])
        for before, now in pairwise(series)
        if now[0] - before[0] > 0.05 and now[1] > before[1]
    ]
    tenth = max(len(rates) // 10, 1)
    return median(rates[-tenth:]) / median(rates[:tenth])


def _fill(broker: Broker, count: int, size: int) -> dict[str, Any]:
    """Publish into a queue that stays."""
    load = ("--count", str(count), "--size", str(size), "--deadline", "1500", "--interval", "0.2")
    return perf(broker, "--scenario", "backlog", *load, "--queue", _QUEUE, "--keep")


def _restart(broker: Broker, expected: int, *, kill: bool) -> float:
    """Seconds until the broker is ready again. MeasureError when it has lost or multiplied messages."""
    broker.kill() if kill else broker.stop()
    broker.start()
    depth = broker.depth(_QUEUE)
    if depth != expected:
        raise MeasureError(f"{broker.name} holds {depth} messages after the restart, {expected} before")
    return broker.started_in


SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Rate("transient", "transient, auto-ack, 1 producer, 1 consumer", 4),
        Rate("mixed", "— sizes 60 to 140 bytes, own message-ids", None),
        Rate("acked", "transient, acked, prefetch 1000", 3.5),
        Rate("confirms", "persistent, confirms (window 2000), acked", 7),
        Rate("mixed-confirms", "— sizes 60 to 140 bytes, own message-ids", None),
        Rate("many", "persistent, 10 producers, 10 consumers, 10 queues, confirms", 3),
        Rate("tx100", "persistent, tx of 100, each commit awaited, acked", 8),
        Rate("tx1", "persistent, tx of 1, each commit awaited", 1.2, "confirm"),
        Rate("tx1x64", "— on 64 channels at once", 3, "confirm"),
        Branches(),
        Rate("fanout", "fanout to 10 queues, persistent, confirms (delivered)", 3),
        Latency(),
        Backlog(),
        History(),
        LongBacklog(),
        SparkLink(),
        JournalAudit(),
    )
}
"""In the order in which they are run."""
