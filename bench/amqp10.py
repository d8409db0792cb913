"""Rates and latencies of AMQP 1.0, each with uniform and with varied messages."""

from __future__ import annotations

from typing import Any

from bench.brokers import Broker
from bench.measure import Measurement, details, perf
from bench.peers import ARTEMIS, BROKER_J
from bench.scenario import Figure, Scenario, Settings

PEERS = (ARTEMIS, BROKER_J)
_WARM_UP = 4.0
"""How many times as long as a measurement a peer is warmed up, because Java compiles its code only after a while."""
_VARIED = ("--size-spread", "40", "--ids", "--correlation-ids", "--timestamps", "--headers")


def warm_up_of(broker: Broker, settings: Settings) -> float:
    """Return the duration (s) of a broker's warm-up."""
    return _WARM_UP * settings.duration if broker.name in PEERS else min(1.5, settings.duration)


class Rate10(Scenario):
    """A rate under a steady load, from publisher to consumer."""

    peers = PEERS

    def __init__(
        self, name: str, title: str, target: float | None, load: tuple[str, ...], own: tuple[str, ...] = ()
    ) -> None:
        """`load` are the load tool's options, and `own` further ones for EscrowMQ only."""
        super().__init__(name, (Figure(name, title, "messages/s", ratio_at_least=target),))
        self._load = load
        self._own = own

    def measure(self, broker: Broker, settings: Settings) -> Measurement:
        result = self._run(broker, settings.duration)
        return Measurement({self.name: result["rates"]["deliver"]}, details(result))

    def warm_up(self, broker: Broker, settings: Settings) -> None:
        self._run(broker, warm_up_of(broker, settings))

    def _run(self, broker: Broker, duration: float) -> dict[str, Any]:
        own = () if broker.name in PEERS else self._own
        return perf(broker, "--protocol", "amqp10", *self._load, *own, "--duration", str(duration))


class Latency10(Scenario):
    """The time from publish to delivery at a fixed rate of durable messages."""

    peers = PEERS

    def __init__(self, name: str, title: str, load: tuple[str, ...] = ()) -> None:
        super().__init__(
            name,
            (Figure(name, title, "ms", ratio_at_most=1.0), Figure(f"{name}.p50", "— p50", "ms", ratio_at_most=1.0)),
        )
        self._load = load

    def measure(self, broker: Broker, settings: Settings) -> Measurement:
        result = self._run(broker, settings.duration)
        latency = result["latency_us"]
        return Measurement(
            {self.name: latency["p99"] / 1000, f"{self.name}.p50": latency["p50"] / 1000}, details(result)
        )

    def warm_up(self, broker: Broker, settings: Settings) -> None:
        self._run(broker, warm_up_of(broker, settings))

    def _run(self, broker: Broker, duration: float) -> dict[str, Any]:
        load = ("--scenario", "latency", "--mode", "first", *self._load)
        return perf(broker, "--protocol", "amqp10", *load, "--duration", str(duration))


_PRESETTLED = ("--mode", "presettled", "--auto-ack")
_FIRST = ("--mode", "first")
_SECOND = ("--mode", "second")
LOADS10: tuple[Scenario, ...] = (
    Rate10("amqp10-presettled", "AMQP 1.0: presettled, transient", None, ("--scenario", "transient", *_PRESETTLED)),
    Rate10("amqp10-varied-presettled", "— varied", 4, ("--scenario", "varied", *_PRESETTLED)),
    Rate10("amqp10-first", "receiver settles first, durable, window 2000", None, ("--scenario", "confirms", *_FIRST)),
    Rate10("amqp10-varied-first", "— varied", 6, ("--scenario", "varied-confirms", *_FIRST)),
    Rate10(
        "amqp10-second",
        "receiver settles second, durable termini (others: first)",
        None,
        ("--scenario", "confirms", *_FIRST),
        _SECOND,
    ),
    Rate10("amqp10-varied-second", "— varied", 4, ("--scenario", "varied-confirms", *_FIRST), _SECOND),
    Rate10("amqp10-tx100", "transactions of 100 posts, each awaited", None, ("--scenario", "tx100", *_FIRST)),
    Rate10("amqp10-varied-tx100", "— varied", 5, ("--scenario", "varied-tx100", *_FIRST)),
    Latency10("amqp10-latency", "latency at 5,000 durable messages/s, p99"),
    Latency10("amqp10-varied-latency", "— varied, p99", _VARIED),
)
"""The loads in the order in which they run."""
