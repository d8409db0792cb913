"""Rates and latencies under a steady load, with the load tool's named scenarios."""

from __future__ import annotations

from typing import Any

from bench.brokers import Broker
from bench.measure import Measurement, details, perf, sync_rate
from bench.scenario import MB, Figure, Scenario, Settings, fill

_FETCHED = "bench-fetched"


class Rate(Scenario):
    """A rate under a steady load, with a named scenario of the load tool."""

    def __init__(self, name: str, title: str, target: float | None, rate: str = "deliver") -> None:
        super().__init__(name, (Figure(name, title, "messages/s", ratio_at_least=target),))
        self._rate = rate

    def measure(self, broker: Broker, settings: Settings) -> Measurement:
        result = perf(broker, "--scenario", self.name, "--duration", str(settings.duration))
        return Measurement({self.name: result["rates"][self._rate]}, details(result))


class KeptQueues(Rate):
    """A rate over many queues, which are declared once for all measurements of a broker."""

    def measure(self, broker: Broker, settings: Settings) -> Measurement:
        result = self._load(broker, settings.duration)
        return Measurement({self.name: result["rates"][self._rate]}, details(result))

    def warm_up(self, broker: Broker, settings: Settings) -> None:
        self._load(broker, min(1.5, settings.duration))

    def _load(self, broker: Broker, duration: float) -> dict[str, Any]:
        kept = ("--queue", "bench-kept", "--keep")
        return perf(broker, "--scenario", self.name, "--duration", str(duration), *kept)


class Volume(Scenario):
    """A rate of large bodies, in MB/s."""

    def __init__(self, name: str, title: str, target: float) -> None:
        super().__init__(name, (Figure(name, title, "MB/s", ratio_at_least=target),))

    def measure(self, broker: Broker, settings: Settings) -> Measurement:
        result = perf(broker, "--scenario", self.name, "--duration", str(settings.duration))
        return Measurement({self.name: result["rates"]["deliver"] * result["workload"]["size"] / MB}, details(result))


class Fetch(Scenario):
    """A backlog is fetched with basic.get; each message is acknowledged individually."""

    def __init__(self, name: str, title: str, target: float, outstanding: int, count: int) -> None:
        """`count` is the number of messages at full scale."""
        super().__init__(name, (Figure(name, title, "messages/s", ratio_at_least=target),))
        self._outstanding = outstanding
        self._count = count

    def measure(self, broker: Broker, settings: Settings) -> Measurement:
        return self._fetch(broker, max(int(self._count * settings.scale), 1000))

    def warm_up(self, broker: Broker, settings: Settings) -> None:
        self._fetch(broker, 1000)

    def _fetch(self, broker: Broker, count: int) -> Measurement:
        fill(broker, count, queue=_FETCHED)
        requests = ("--get", str(self._outstanding), "--ack-every", "1")
        result = perf(broker, "--producers", "0", "--queue", _FETCHED, *requests)
        return Measurement({self.name: result["rates"]["deliver"]}, details(result))


class Latency(Scenario):
    """The time from publish to delivery at a fixed rate."""

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
    """Distributed transactions of one publish each, compared with `tx` and with the disk's syncs meanwhile."""

    peers = ()

    def __init__(self) -> None:
        super().__init__(
            "xa",
            (
                Figure("xa.one-phase", "dtx, one-phase, one branch at a time", "commits/s"),
                Figure("xa.one-phase-by-tx", "— divided by the rate of tx of 1", ""),
                Figure("xa.two-phase", "dtx, two-phase, one branch at a time", "commits/s"),
                Figure("xa.two-phase-share", "— divided by half the disk's syncs/s", ""),
                Figure("xa.concurrent", "dtx, two-phase, 32 branches at once", "commits/s"),
                Figure("xa.per-sync", "— branches per sync", "", at_least=10),
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
