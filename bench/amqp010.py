"""Rates of AMQP 0-10, with uniform and with varied messages, and its distributed transactions beside those of 0-9-1."""

from __future__ import annotations

from statistics import median
from typing import Any

from bench.amqp10 import warm_up_of
from bench.brokers import Broker
from bench.measure import Measurement, details, perf
from bench.peers import BROKER_J
from bench.scenario import Figure, Scenario, Settings

_PROTOCOL = ("--protocol", "amqp010")
_PAIRS = 4
_BRANCHES = {"one": "xa1", "concurrent": "xa32"}
"""The loads with one branch at a time and with 32 at once, by the name of their figure."""


class Rate010(Scenario):
    """A rate under a steady load. Consumers have window credit, and publishers wait for completions."""

    peers = (BROKER_J,)

    def __init__(self, name: str, title: str, target: float | None, load: str, rate: str = "deliver") -> None:
        """`load` is a scenario of the load tool."""
        unit = "messages/s" if rate == "deliver" else "commits/s"
        super().__init__(name, (Figure(name, title, unit, ratio_at_least=target),))
        self._load = load
        self._rate = rate

    def measure(self, broker: Broker, settings: Settings) -> Measurement:
        result = self._run(broker, settings.duration)
        return Measurement({self.name: result["rates"][self._rate]}, details(result))

    def warm_up(self, broker: Broker, settings: Settings) -> None:
        self._run(broker, warm_up_of(broker, settings))

    def _run(self, broker: Broker, duration: float) -> dict[str, Any]:
        return perf(broker, *_PROTOCOL, "--scenario", self._load, "--duration", str(duration))


class Branches010(Scenario):
    """Two-phase commits of one publish each, divided by those over AMQP 0-9-1 in the same measurement."""

    peers = ()

    def __init__(self, pairs: int = _PAIRS) -> None:
        """Each protocol runs twice in each pair."""
        self._pairs = pairs
        super().__init__(
            "amqp010-xa",
            (
                Figure("amqp010-xa.one", "AMQP 0-10: dtx, two-phase, one branch at a time", "commits/s"),
                Figure("amqp010-xa.one-share", "— divided by those over AMQP 0-9-1", "", at_least=0.8),
                Figure("amqp010-xa.concurrent", "— 32 branches at once", "commits/s"),
                Figure("amqp010-xa.concurrent-share", "— divided by those over AMQP 0-9-1", "", at_least=0.8),
            ),
        )

    def measure(self, broker: Broker, settings: Settings) -> Measurement:
        figures: dict[str, float] = {}
        kept: dict[str, Any] = {}
        for name, load in _BRANCHES.items():
            runs: dict[tuple[str, ...], list[dict[str, Any]]] = {(): [], _PROTOCOL: []}
            # In short pieces, each protocol as often first as second, because the speed of the disk varies.
            for order in ([(), _PROTOCOL], [_PROTOCOL, ()]) * self._pairs:
                for protocol in order:
                    runs[protocol].append(self._run(broker, load, protocol, settings.duration / (2 * self._pairs)))
            own, other = (median([each["rates"]["confirm"] for each in runs[key]]) for key in (_PROTOCOL, ()))
            figures[f"{self.name}.{name}"] = own
            figures[f"{self.name}.{name}-share"] = own / other
            kept |= {load: [*map(details, runs[_PROTOCOL])], f"{load}-amqp091": [*map(details, runs[()])]}
        return Measurement(figures, kept)

    def warm_up(self, broker: Broker, settings: Settings) -> None:
        for protocol in ((), _PROTOCOL):
            self._run(broker, _BRANCHES["concurrent"], protocol, min(1.5, settings.duration))

    def _run(self, broker: Broker, load: str, protocol: tuple[str, ...], duration: float) -> dict[str, Any]:
        return perf(broker, *protocol, "--scenario", load, "--duration", str(duration))


LOADS010: tuple[Scenario, ...] = (
    Rate010("amqp010-transient", "AMQP 0-10: window credit, transient", None, "transient"),
    Rate010("amqp010-varied-transient", "— varied", None, "varied"),
    Rate010("amqp010-durable", "durable, completion (window 2000), accepted", None, "confirms"),
    Rate010("amqp010-varied-durable", "— varied", 5, "varied-confirms"),
    Rate010("amqp010-varied-tx100", "durable, varied, tx of 100, each commit awaited", None, "varied-tx100"),
    Rate010("amqp010-xa32", "dtx, two-phase, 32 branches at once", None, "xa32", "confirm"),
    Branches010(),
)
"""The loads in the order in which they run."""
