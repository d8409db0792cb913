"""Three brokers with one journal, on three nodes of an engine, beside a RabbitMQ cluster with quorum queues."""

from __future__ import annotations

import time

from bench.brokers import Broker
from bench.cluster import Cluster
from bench.measure import Measurement, details, perf
from bench.rabbitmq_cluster import RABBITMQ_CLUSTER
from bench.replicated_brokers import OnKafka, OnNats, ReplicatedEscrowMQ
from bench.scenario import Figure, Scenario, Settings

_VARIED = ("--size-spread", "40", "--ids", "--correlation-ids", "--timestamps", "--headers")

_WARM_UP_SECONDS = 1.5
_WARM_UP_RUNS = 9
"""A warm-up lasts at most as long as so many measurements, which may be short."""
_RISES = 1.05
"""A rate that is greater by this factor than all before shows that the broker is not warm yet."""
_MOST_THAWS = 24


class ReplicatedRate(Scenario):
    """A rate under a scenario of the load tool."""

    def __init__(
        self,
        name: str,
        title: str,
        own: type[ReplicatedEscrowMQ],
        load: tuple[str, ...],
        rate: str,
        target: float | None,
    ) -> None:
        super().__init__(name, (Figure(name, title, "messages/s", ratio_at_least=target),))
        self.own = own
        self.peers = (RABBITMQ_CLUSTER,)
        self._load = load
        self._rate = rate

    def warm_up(self, broker: Broker, settings: Settings) -> None:
        if isinstance(broker, ReplicatedEscrowMQ):
            seconds, thaws = broker.warm_up_seconds, broker.warm_up_thaws
        else:
            seconds, thaws = _WARM_UP_SECONDS, 0
        self._run(broker, min(seconds, _WARM_UP_RUNS * settings.duration))
        best, more = 0.0, thaws
        for _ in range(_MOST_THAWS):
            if not more:
                break
            broker.freeze()
            time.sleep(settings.duration)  # as while the other broker is measured
            broker.thaw()
            rate = self._run(broker, settings.duration).figures[self.name]
            more -= 1
            if rate > _RISES * best:
                best, more = rate, thaws

    def measure(self, broker: Broker, settings: Settings) -> Measurement:
        return self._run(broker, settings.duration)

    def _run(self, broker: Broker, duration: float) -> Measurement:
        assert isinstance(broker, Cluster)
        result = perf(broker, "--scenario", *self._load, "--duration", str(duration), *broker.load_options)
        return Measurement({self.name: result["rates"][self._rate]}, details(result))


def _rates(engine: str, own: type[ReplicatedEscrowMQ], confirms: float, tx1: float) -> tuple[Scenario, ...]:
    name = f"replicated-{own.engine.scheme}"
    return (
        ReplicatedRate(f"{name}-confirms", f"{engine}: persistent, confirms", own, ("confirms",), "deliver", None),
        ReplicatedRate(f"{name}-varied-confirms", "— varied", own, ("varied-confirms",), "deliver", confirms),
        ReplicatedRate(f"{name}-tx1x64", "— tx of 1, 64 channels, varied", own, ("tx1x64", *_VARIED), "confirm", 1.5),
        ReplicatedRate(f"{name}-tx1", "— tx of 1, one channel, varied", own, ("tx1", *_VARIED), "confirm", tx1),
    )


REPLICATED_RATES = (*_rates("Kafka", OnKafka, 5, 0.5), *_rates("NATS", OnNats, 8, 1.2))
