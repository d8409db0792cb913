"""Spark beside Kafka: the figures of `spark_systems`, and their targets."""

from __future__ import annotations

import subprocess
from itertools import product

from bench.brokers import Broker
from bench.kafka_broker import CONNECTOR, KAFKA, KAFKA_SYNCED
from bench.measure import MeasureError, Measurement
from bench.scenario import Figure, Scenario, Settings
from bench.spark_rows import COLUMNS, ROWS
from bench.spark_systems import JOBS, measured_systems


class SparkBesideKafka(Scenario):
    """Spark reads, writes and moves the same rows, beside Kafka and Spark's own connector for it.

    Rates come with the processor time for each row. Targets are for varied rows with all columns.
    """

    fresh = True
    alternations = 1

    def __init__(self, name: str, peer: str, write: float, through: float, *, absolute: bool) -> None:
        """`write` and `through` are the least ratios to the peer. With `absolute`, there are targets of our own."""
        self.peers = (peer,)
        least = {"write": 130_000.0, "through": 100_000.0, "through-uniform-all": 150_000.0} if absolute else {}
        ratios = {"write": write, "read": 0.7, "through": through}
        figures = []
        for kind, columns, job in product(reversed(ROWS), reversed(COLUMNS), JOBS):
            title = f"Spark {job}, {kind} rows, {'all columns' if columns == 'all' else 'body alone'}"
            key, aimed = f"{job}-{kind}-{columns}", (kind, columns) == ("varied", "all")
            figures += [
                Figure(
                    f"{name}.{key}",
                    title,
                    "messages/s",
                    ratio_at_least=ratios[job] if aimed else None,
                    at_least=least.get(job if aimed else key),
                ),
                Figure(f"{name}.{key}-cpu-broker", "— processor time of the broker for each row", "µs"),
                Figure(f"{name}.{key}-cpu-spark", "— that of Spark and its workers", "µs"),
            ]
        super().__init__(name, tuple(figures))

    def measure(self, broker: Broker, settings: Settings) -> Measurement:
        count = int(500_000 * max(settings.scale, 0.02))
        try:
            found = measured_systems(broker.url, CONNECTOR, count, broker.pids())
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            raise MeasureError(f"{self.name}: {error}") from error
        return Measurement({f"{self.name}.{key}": value for key, value in found.items()})


SPARK_BESIDE_KAFKA = (
    SparkBesideKafka("spark-kafka", KAFKA, 0.5, 0.6, absolute=True),
    SparkBesideKafka("spark-kafka-synced", KAFKA_SYNCED, 1.5, 1.5, absolute=False),
)
