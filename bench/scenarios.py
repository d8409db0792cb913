"""All scenarios in the order in which they run, with the target of each figure."""

from __future__ import annotations

import subprocess
from itertools import product
from typing import ClassVar

from bench.amqp010 import LOADS010
from bench.amqp10 import LOADS10
from bench.audits import measured as audited
from bench.backlogs import Backlog, DeadLetters, History, LongBacklog, PriorityBacklog
from bench.brokers import Broker
from bench.half_due import HalfDue
from bench.half_pending import HalfPending
from bench.held import HeldDeliveries, published, received
from bench.http_lists import HttpLists
from bench.idle import LoneMessage
from bench.large_requests import LARGE_REQUESTS
from bench.many_objects import MANY_OBJECTS
from bench.measure import MeasureError, Measurement
from bench.models import Models
from bench.neighbours import NEIGHBOURS
from bench.publish_many import PublishMany
from bench.rates import Branches, Fetch, KeptQueues, Latency, Rate, Volume
from bench.replicated import REPLICATED_RATES
from bench.rocketmq import ROCKETMQ_RATES
from bench.rocketmq_java import RocketmqJava
from bench.scenario import Figure, Scenario, Settings
from bench.spark_kafka import SPARK_BESIDE_KAFKA
from bench.spark_link import measured
from bench.spark_rows import COLUMNS, PATHS, ROWS
from bench.spark_rows import measured as paces
from bench.stalls import STALLS
from bench.standby_start import STANDBY_STARTS
from bench.take_overs import TAKE_OVERS


class SparkLink(Scenario):
    """Spark reads a queue, writes to a queue, and moves messages between queues, compared with Spark without a
    broker.
    """

    fresh = True
    peers = ()

    def __init__(self) -> None:
        super().__init__(
            "spark",
            (
                Figure("spark.read", "Spark local[2], 200 B: queue read, all columns", "messages/s", at_least=150_000),
                Figure("spark.read_twin", "— from Spark's own rows instead", "messages/s"),
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


class SparkRows(Scenario):
    """Streaming queries over uniform and varied messages, with the body alone and all columns, and their CPU time."""

    fresh = True
    peers = ()
    alternations = 1
    _TARGETS: ClassVar[dict[str, float]] = {
        "uniform-all-through": 150_000,
        "varied-body-read": 350_000,
        "varied-all-read": 200_000,
        "varied-all-through": 100_000,
    }
    _BROKER_US: ClassVar[dict[str, float]] = {"read": 2, "through": 4}

    def __init__(self) -> None:
        figures: list[Figure] = []
        for rows, columns, path in product(ROWS, COLUMNS, PATHS):
            name = f"{rows}-{columns}-{path}"
            way = "queue → Spark" if path == "read" else "queue → Spark → queue"
            what = "body alone" if columns == "body" else "all columns"
            title = f"Spark local[2], 90 B, {rows} rows, {what}: {way}"
            figures.append(Figure(f"spark-rows.{name}", title, "messages/s", at_least=self._TARGETS.get(name)))
            figures.append(Figure(f"spark-rows.{name}.spark", "— CPU of Spark for each row", "µs"))
            below = self._BROKER_US[path]
            figures.append(Figure(f"spark-rows.{name}.broker", "— CPU of the broker for each row", "µs", below=below))
        super().__init__("spark-rows", tuple(figures))

    def measure(self, broker: Broker, settings: Settings) -> Measurement:
        try:
            found = paces(broker.url, broker.pids(), int(1_000_000 * max(settings.scale, 0.4)))
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            raise MeasureError(f"spark-rows: {error}") from error
        figures: dict[str, float] = {}
        for name, pace in found.items():
            figures[f"spark-rows.{name}"] = pace.rate
            figures[f"spark-rows.{name}.spark"] = pace.spark_us
            figures[f"spark-rows.{name}.broker"] = pace.broker_us
        return Measurement(figures)


class JournalAudit(Scenario):
    """The audit of ten million messages, uniform and varied, of half and five times as many, and during load."""

    fresh = True
    peers = ()
    alternations = 1

    def __init__(self) -> None:
        super().__init__(
            "audit",
            (
                Figure(
                    "audit.varied-rate",
                    "audit of 10,000,000 varied messages, from start to verdict",
                    "messages/s",
                    at_least=120_000,
                ),
                Figure("audit.varied-memory", "— memory, all its processes", "MB", below=2000),
                Figure("audit.varied-long", "— time for each of 50,000,000, divided by that", "", below=1.1),
                Figure("audit.varied-long-memory", "— memory for 50,000,000, all its processes", "MB", below=2000),
                Figure(
                    "audit.rate",
                    "audit of 10,000,000 uniform messages, from start to verdict",
                    "messages/s",
                    at_least=100_000,
                ),
                Figure("audit.twice", "— time, divided by that for half of them", "", below=2.1),
                Figure("audit.memory", "— memory, all its processes", "MB"),
                Figure("audit.memory-twice", "— memory, divided by that for half of them", "", below=1.2),
                Figure(
                    "audit.broker-share", "— confirm rate during an audit, divided by that without", "", at_least=0.9
                ),
            ),
        )

    def measure(self, broker: Broker, settings: Settings) -> Measurement:
        return Measurement(audited(broker, int(10_000_000 * max(settings.scale, 0.2)), settings.duration))


SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Rate("transient", "transient, auto-ack, 1 producer, 1 consumer", 4),
        Rate("mixed", "— sizes 60 to 140 bytes, own message-ids", None),
        Rate("acked", "transient, acked, prefetch 1000", 3.5),
        Rate("confirms", "persistent, confirms (window 2000), acked", 7),
        Rate("mixed-confirms", "— sizes 60 to 140 bytes, own message-ids", None),
        Rate("correlation-ids", "transient, acked, own correlation-ids", 5),
        Rate("headers", "— own header tables", 4),
        Rate("varied", "— varied", 4),
        Rate("varied-confirms", "persistent, confirms, acked, varied", 6),
        Rate("varied-topic", "— own routing keys, topic exchange with 1,000 bindings", 4),
        Rate("varied-tx100", "persistent, tx of 100, varied", 5),
        Rate("many", "persistent, 10 producers, 10 consumers, 10 queues, confirms", 3),
        Rate("tx100", "persistent, tx of 100, each commit awaited, acked", 8),
        Rate("tx1", "persistent, tx of 1, each commit awaited", 1.2, "confirm"),
        Rate("tx1x64", "— on 64 channels at once", 3, "confirm"),
        Branches(),
        Models(),
        Rate("fanout", "fanout to 10 queues, persistent, confirms (delivered)", 3),
        KeptQueues("random400", "persistent, confirms, to a random one of 400 queues", 8),
        KeptQueues("random10000", "— of 10,000 queues", 8),
        Volume("large-16k", "transient, acked, bodies of 16 KiB", 1.6),
        Volume("large-256k", "— of 256 KiB", 1.0),
        Volume("large-4m", "— of 4 MiB", 0.9),
        Volume("large-16k-confirms", "persistent, confirms, acked, bodies of 16 KiB", 1.8),
        Volume("large-256k-confirms", "— of 256 KiB", 1.0),
        Volume("large-4m-confirms", "— of 4 MiB", 0.9),
        Rate("rpc1", "request and reply over direct reply-to, 1 outstanding", 1.5, "confirm"),
        Rate("rpc50", "— 50 outstanding", 2, "confirm"),
        Fetch("get", "basic.get, one by one, each acked", 1.8, 1, 50_000),
        Fetch("get-pipelined", "— 100 outstanding", 2, 100, 200_000),
        Rate("crowd1", "transient, 1,000 consumers on one queue, prefetch 1", 3),
        Rate("crowd100", "— prefetch 100", 5),
        LoneMessage(),
        PublishMany(),
        Latency(),
        *LOADS10,
        HeldDeliveries("amqp10-held-received", "1,000,000 deliveries that no consumer settles", received),
        HeldDeliveries("amqp10-held-published", "1,000,000 deliveries that no producer settles", published),
        *LOADS010,
        *ROCKETMQ_RATES,
        RocketmqJava(),
        HalfDue(),
        Backlog(),
        History(),
        LongBacklog(),
        HalfPending(),
        SparkLink(),
        SparkRows(),
        *SPARK_BESIDE_KAFKA,
        PriorityBacklog(),
        DeadLetters(),
        *STALLS,
        *LARGE_REQUESTS,
        *MANY_OBJECTS,
        *NEIGHBOURS,
        HttpLists(),
        *REPLICATED_RATES,
        *TAKE_OVERS,
        *STANDBY_STARTS,
        JournalAudit(),
    )
}
"""All scenarios in the order in which they run."""
