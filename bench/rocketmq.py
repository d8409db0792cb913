"""Rates over both protocols of RocketMQ, side by side with RocketMQ itself, with small and with larger bodies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from bench.brokers import Broker
from bench.measure import MeasureError, Measurement, details, perf
from bench.rocketmq_broker import ROCKETMQ, RocketMQ, RocketmqEscrowMQ
from bench.scenario import Figure, Scenario, Settings

SIZES: Final = (100, 1000)
QUEUES: Final = ("--queues", "4")
_WARM_UP: Final = 0.7
"""The part of a measurement's duration for which each load warms a broker up. All loads together are long enough."""
_SYNCHRONOUS: Final = ("--window", "1")
_MANY: Final = ("--window", "64")
_FETCHED: Final = "bench-fetched"
_FILL: Final = ("--confirms", "--batch", "32", "--window", "2048", "--consumers", "0", "--keep")


@dataclass(frozen=True, slots=True)
class RocketmqLoad:
    """One load: options of the load tool, and the rate that counts.

    `backlog` is the number of messages for each second of the measurement that are stored first and then consumed; 0
    for loads that send.
    """

    name: str
    title: str
    target: float
    options: tuple[str, ...] = ()
    rate: str = "deliver"
    backlog: int = 0


class RocketmqRates(Scenario):
    """The loads of one protocol. Brokers are started once for all of them."""

    peers = (ROCKETMQ,)
    own = RocketmqEscrowMQ

    def __init__(self, name: str, protocol: str, title: str, loads: tuple[RocketmqLoad, ...]) -> None:
        figures = [
            Figure(f"{name}.{load.name}-{size}", f"{title}: {load.title}, {size} B", "messages/s", load.target)
            for load in loads
            for size in SIZES
        ]
        super().__init__(name, tuple(figures))
        self._protocol = protocol
        self._loads = loads

    def measure(self, broker: Broker, settings: Settings) -> Measurement:
        figures: dict[str, float] = {}
        kept: dict[str, Any] = {}
        for load in self._loads:
            for size in SIZES:
                name = f"{self.name}.{load.name}-{size}"
                result = self._run(broker, load, size, settings.duration)
                figures[name] = result["rates"][load.rate]
                kept[name] = details(result)
        return Measurement(figures, kept)

    def warm_up(self, broker: Broker, settings: Settings) -> None:
        for load in self._loads:
            self._run(broker, load, SIZES[0], settings.duration * _WARM_UP)

    def _run(self, broker: Broker, load: RocketmqLoad, size: int, duration: float) -> dict[str, Any]:
        if not isinstance(broker, RocketMQ | RocketmqEscrowMQ):
            raise MeasureError(f"{broker.name} does not speak RocketMQ's protocols")
        shared = (*QUEUES, "--size", str(size), "--deadline", "90")
        target: tuple[str, ...] = ("--protocol", self._protocol, "--url", broker.rocketmq_url)
        if self._protocol != "rocketmq":
            server = broker.rocketmq_url.partition("//")[2]
            target = ("--protocol", self._protocol, "--url", broker.grpc_url, "--name-server", server)
        if not load.backlog:
            return perf(broker, *target, *shared, *load.options, "--duration", str(duration))
        count = ("--count", str(max(int(load.backlog * duration), 64)))
        queue = ("--queue", _FETCHED)
        perf(broker, "--protocol", "rocketmq", "--url", broker.rocketmq_url, *shared, *_FILL, *count, *queue)
        return perf(broker, *target, *shared, "--producers", "0", *queue)


_TRANSACTION: Final = ("--tx-size", "1")
ROCKETMQ_RATES: tuple[Scenario, ...] = (
    RocketmqRates(
        "rocketmq-remoting",
        "rocketmq",
        "remoting",
        (
            RocketmqLoad("tx1", "half, commit, delivered; one at a time", 2, (*_TRANSACTION, *_SYNCHRONOUS)),
            RocketmqLoad("tx64", "half, commit, delivered; 64 in flight", 8, (*_TRANSACTION, *_MANY)),
            RocketmqLoad("send64", "sends, 64 in flight", 4, ("--confirms", *_MANY)),
            RocketmqLoad("batch32", "sends of 32, one at a time", 4, ("--confirms", "--batch", "32", "--window", "32")),
            RocketmqLoad(
                "batch32-4", "sends of 32, 4 in flight", 4, ("--confirms", "--batch", "32", "--window", "128")
            ),
            RocketmqLoad("pull", "pulled, offsets committed", 3, backlog=20_000),
        ),
    ),
    RocketmqRates(
        "rocketmq-grpc",
        "rocketmq-grpc",
        "gRPC",
        (
            RocketmqLoad("tx64", "half, commit, delivered; 64 in flight", 8, (*_TRANSACTION, *_MANY)),
            RocketmqLoad(
                "send64", "sends, 64 in flight", 3, ("--confirms", *_MANY, "--consumers", "0"), rate="confirm"
            ),
            RocketmqLoad("pop", "received, each acknowledged", 3, backlog=1500),
        ),
    ),
)
"""The loads in the order in which they run."""
