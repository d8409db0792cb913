"""Transactions of RocketMQ's unmodified classic client in Java, with EscrowMQ and with RocketMQ.

The load tool sends the same bytes to both brokers and costs little. This scenario checks that an application's client
finds the same: `python bench/run.py --scenarios rocketmq-java`.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

from bench.brokers import Broker
from bench.measure import MeasureError, Measurement, perf
from bench.rocketmq import QUEUES
from bench.rocketmq_broker import ROCKETMQ, RocketMQ, RocketmqEscrowMQ
from bench.scenario import Figure, Scenario, Settings

LOAD: Final = Path(__file__).parent / "java" / "RocketLoad.java"
THREADS: Final = (1, 64)
SIZES: Final = (100, 1000)
_TARGETS: Final = {1: 2.0, 64: 8.0}
_TOPIC: Final = "bench-java"
_TIMEOUT_SECONDS: Final = 300


class RocketmqJava(Scenario):
    """Half message, commit and delivery to a push consumer, from one thread and from many."""

    peers = (ROCKETMQ,)
    own = RocketmqEscrowMQ

    def __init__(self) -> None:
        figures = [
            Figure(
                f"rocketmq-java.tx{threads}-{size}",
                f"RocketMQ's client in Java: half, commit, delivered; {threads} at a time, {size} B",
                "messages/s",
                _TARGETS[threads],
            )
            for threads in THREADS
            for size in SIZES
        ]
        super().__init__("rocketmq-java", tuple(figures))

    def warm_up(self, broker: Broker, settings: Settings) -> None:
        """Create the topic, and run the load for the broker's own sake."""
        server = ("--protocol", "rocketmq", "--url", _rocketmq(broker).rocketmq_url)
        load = ("--tx-size", "1", "--window", "64", "--duration", str(settings.duration), "--consumers", "0")
        perf(broker, *server, *QUEUES, "--queue", _TOPIC, "--keep", *load)

    def measure(self, broker: Broker, settings: Settings) -> Measurement:
        figures: dict[str, float] = {}
        kept: dict[str, Any] = {}
        for threads in THREADS:
            for size in SIZES:
                name = f"rocketmq-java.tx{threads}-{size}"
                kept[name] = found = _run(_rocketmq(broker), threads, size, settings.duration)
                if found["delivered"] < found["committed"]:
                    raise MeasureError(f"{broker.name}: {found} in {name}: messages were not delivered in time")
                figures[name] = found["delivered"] / found["seconds"]
        return Measurement(figures, kept)


def _rocketmq(broker: Broker) -> RocketMQ | RocketmqEscrowMQ:
    if not isinstance(broker, RocketMQ | RocketmqEscrowMQ):
        raise MeasureError(f"{broker.name} does not speak RocketMQ's protocols")
    return broker


def _run(broker: RocketMQ | RocketmqEscrowMQ, threads: int, size: int, seconds: float) -> dict[str, Any]:
    server = broker.rocketmq_url.partition("//")[2]
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run(
            [
                *("java", "-Xmx1G", f"-Duser.home={home}", "-cp", f"{RocketMQ.jars}/*", str(LOAD)),
                *(server, _TOPIC, str(threads), str(size), str(seconds)),
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_SECONDS,
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise MeasureError(f"RocketMQ's client in Java ended with {done.returncode}: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(lines[-1])
    return found
