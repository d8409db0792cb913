"""The latency of one client's steady traffic while monitoring asks for long lists over HTTP every second.

Windows with and without the poller alternate in the same run, so that both are measured under the same conditions.
"""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Final
from urllib.error import URLError
from urllib.request import urlopen

from bench import operations
from bench.brokers import Broker, EscrowMQ, free_port
from bench.measure import MeasureError, Measurement
from bench.neighbours import EVERY_SECONDS, Neighbour, Trip091
from bench.scenario import Figure, Scenario, Settings
from bench.stalls import channel_of
from escrowmq.perf.amqp091.connection import Connection
from escrowmq.perf.histogram import Histogram
from escrowmq.perf.url import parse_url

QUEUES: Final = 10_000
CONNECTIONS: Final = 1000
RATIO: Final = 1.1
"""The greatest p99 beside the poller, as a multiple of that without it."""
WINDOWS: Final = 10
"""Of each kind."""
SECONDS: Final = 4.0
"""In each window."""
_PATHS: Final = ("/api/queues", "/api/connections")
_START_SECONDS: Final = 30.0


class HttpEscrowMQ(EscrowMQ):
    """EscrowMQ with its HTTP process."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.http_port = free_port()

    def _arguments(self) -> tuple[str, ...]:
        return (*super()._arguments(), "--http", f"127.0.0.1:{self.http_port}")

    def wait_for_http(self) -> None:
        """Wait until the HTTP process answers. Raises MeasureError."""
        until = time.monotonic() + _START_SECONDS
        while True:
            try:
                with urlopen(f"http://127.0.0.1:{self.http_port}/health", timeout=_START_SECONDS):
                    return
            except URLError as error:
                if time.monotonic() > until:
                    raise MeasureError(f"the HTTP process does not answer: {error}") from error
                time.sleep(0.1)


class HttpLists(Scenario):
    """10,000 queues and 1,000 connections are listed over HTTP every second, beside 5,000 messages per second."""

    fresh = True
    peers = ()
    alternations = 1
    own = HttpEscrowMQ

    def __init__(self, windows: int = WINDOWS, seconds: float = SECONDS) -> None:
        self._windows = windows
        self._seconds = seconds
        title = "p99 at 5,000/s beside lists of 10,000 queues and 1,000 connections over HTTP each second"
        super().__init__(
            "neighbours-http",
            (
                Figure("neighbours-http", title + ", divided by that without", "×", below=RATIO),
                Figure("neighbours-http.beside", "— p99 beside the lists", "ms"),
                Figure("neighbours-http.alone", "— p99 without them", "ms"),
                Figure("neighbours-http.list", "— both lists, median", "s"),
            ),
        )

    def measure(self, broker: Broker, settings: Settings) -> Measurement:
        if not isinstance(broker, HttpEscrowMQ):
            raise MeasureError(f"{broker.name} has no HTTP process of ours")
        broker.wait_for_http()
        alone, beside, took = Histogram(), Histogram(), list[float]()
        with channel_of(broker) as connection, ExitStack() as idle:
            operations.declared(connection, operations.names_of(max(int(QUEUES * settings.scale), 10), "listed"))
            for _ in range(max(int(CONNECTIONS * settings.scale), 10)):
                idle.enter_context(Connection(parse_url(broker.url), "bench idle", operations.TIMEOUT))
            for _ in range(self._windows):
                _window(broker, alone, self._seconds)
                took += _polled_window(broker, beside, self._seconds)
        return Measurement(
            {
                self.name: beside.percentile(99) / alone.percentile(99),
                f"{self.name}.beside": beside.percentile(99) / 1e6,
                f"{self.name}.alone": alone.percentile(99) / 1e6,
                f"{self.name}.list": median(took),
            }
        )


def _window(broker: Broker, latencies: Histogram, seconds: float) -> None:
    with Neighbour(Trip091(broker), EVERY_SECONDS, latencies):
        time.sleep(seconds)


def _polled_window(broker: HttpEscrowMQ, latencies: Histogram, seconds: float) -> list[float]:
    """Measure a window beside the poller, after its first round, and return the seconds of the others. Raises
    MeasureError.
    """
    command = [sys.executable, "-m", "bench.poller", str(broker.http_port), *_PATHS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as poller:
        assert poller.stdout is not None
        if not poller.stdout.readline():
            raise MeasureError("the poller ended")
        _window(broker, latencies, seconds)
        poller.terminate()
        rounds = [float(line.split()[0]) for line in poller.stdout]
    if not rounds:
        raise MeasureError("no list was answered in time")
    return rounds
