"""How long nothing is confirmed when the leader of a cluster is killed, is frozen, or hands over."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from statistics import median

from bench.brokers import Broker
from bench.cluster import Cluster
from bench.measure import MeasureError, Measurement
from bench.rabbitmq_cluster import RABBITMQ_CLUSTER
from bench.replicated_brokers import OnKafka, OnNats, ReplicatedEscrowMQ
from bench.scenario import Figure, Scenario, Settings
from escrowmq.admin.socket.client import ask
from escrowmq.client import Connection, Error, Properties, connect

QUEUE = "bench-take-over"
_QUORUM = {"x-queue-type": "quorum"}
_PERSISTENT = Properties(delivery_mode=2)
_BEFORE = 50
"""Messages that are confirmed before the fault."""
_PATIENCE = 60.0


class Publisher:
    """Publishes with confirms, one message after the other, and connects again to any node after an error."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._connection: Connection | None = None

    def begin(self) -> None:
        """Connect to the node that leads, and declare the queue there, anew."""
        self.close()
        with connect(self._cluster.url) as connection, suppress(Error):
            connection.channel().queue_delete(QUEUE)
        self._open([self._cluster.url] * 2)  # so that the client has the limits for several nodes
        for _ in range(_BEFORE):
            self._publish()

    def until_confirmed(self, *, elsewhere: bool = False) -> float:
        """Return the seconds until a message is confirmed, with `elsewhere` on another connection than now. Raises
        MeasureError if that takes too long.
        """
        before = self._connection
        began = time.monotonic()
        while time.monotonic() - began < _PATIENCE:
            try:
                if self._connection is None:
                    self._open([f"amqp://guest:guest@127.0.0.1:{port}/" for port in self._cluster.ports])
                self._publish()
            except Error:
                self.close()
            else:
                if not elsewhere or self._connection is not before:
                    return time.monotonic() - began
        raise MeasureError(f"{self._cluster.name} confirms nothing for {_PATIENCE:g} s")

    def close(self) -> None:
        """Disconnect, if possible."""
        if self._connection is not None:
            with suppress(Error):
                self._connection.close(timeout=0.1)
        self._connection = None

    def _open(self, urls: list[str]) -> None:
        self._connection = connect(urls)
        self._channel = self._connection.channel()
        self._channel.queue_declare(QUEUE, durable=True, arguments=_QUORUM)
        self._channel.confirm_delivery()

    def _publish(self) -> None:
        self._channel.basic_publish("", QUEUE, b"a message of about 32 bytes, yes", _PERSISTENT)


class TakeOver(Scenario):
    """From a fault of the leader to the first confirm at another node."""

    def __init__(
        self, name: str, title: str, own: type[ReplicatedEscrowMQ], fault: Callable[[Cluster], None], below: float
    ) -> None:
        super().__init__(name, (Figure(name, title, "s", ratio_at_most=1.0, below=below),))
        self.own = own
        self.peers = (RABBITMQ_CLUSTER,)
        self._fault = fault

    def warm_up(self, broker: Broker, settings: Settings) -> None:
        """Take no measurement: the first confirms are part of each."""

    def measure(self, broker: Broker, settings: Settings) -> Measurement:
        assert isinstance(broker, Cluster)
        publisher = Publisher(broker)
        publisher.begin()
        self._fault(broker)
        try:
            return Measurement({self.name: publisher.until_confirmed()})
        finally:
            publisher.close()
            broker.repair()


class HandOver(Scenario):
    """From `escrowmq replica handover` to the first confirm at another node, some times in turn."""

    peers = ()
    alternations = 1

    def __init__(self, name: str, title: str, own: type[ReplicatedEscrowMQ], times: int = 10) -> None:
        figures = (
            Figure(name, title, "s", below=1.5),
            Figure(f"{name}.longest", f"— the longest of {times}", "s", below=1.5),
        )
        super().__init__(name, figures)
        self.own = own
        self._times = times

    def warm_up(self, broker: Broker, settings: Settings) -> None:
        """Take no measurement: the first confirms are part of each."""

    def measure(self, broker: Broker, settings: Settings) -> Measurement:
        assert isinstance(broker, ReplicatedEscrowMQ)
        publisher, taken = Publisher(broker), []
        for _ in range(self._times):
            publisher.begin()
            began = time.monotonic()
            ask(broker.data_dir, "replica.handover")
            publisher.until_confirmed(elsewhere=True)
            taken.append(time.monotonic() - began)
            broker.repair()
        publisher.close()
        figures = {self.name: median(taken), f"{self.name}.longest": max(taken)}
        return Measurement(figures, {"seconds": taken})


def _take_overs(engine: str, own: type[ReplicatedEscrowMQ]) -> tuple[Scenario, ...]:
    name = f"replicated-{own.engine.scheme}"
    return (
        TakeOver(f"{name}-kill", f"{engine}: kill -9 of the leader to the next confirm", own, Cluster.kill_leader, 5),
        TakeOver(f"{name}-freeze", "— SIGSTOP instead", own, Cluster.freeze_leader, 10),
        HandOver(f"{name}-handover", "— handover instead", own),
    )


TAKE_OVERS = (*_take_overs("Kafka", OnKafka), *_take_overs("NATS", OnNats))
