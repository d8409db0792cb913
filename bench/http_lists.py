"""The latency of one client's steady traffic while monitoring asks for long lists over HTTP every second.

Short windows with and without the poller alternate in the same run, so that both are measured under the same
conditions. Each window is compared with its neighbours in time, and the figure is the median of these ratios: a machine
that gets slower for some seconds disturbs a few of them, and one that changes its speed slowly disturbs none. The same
is done with windows that both have no poller. Their ratio shows what the others are worth.
"""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Final, Self
from urllib.error import URLError
from urllib.request import urlopen

from bench import operations
from bench.brokers import Broker, EscrowMQ, free_port
from bench.measure import MeasureError, Measurement
from bench.neighbours import EVERY_SECONDS, Neighbour, Trip, Trip091
from bench.scenario import Figure, Scenario, Settings
from bench.stalls import channel_of
from escrowmq.perf.amqp091.connection import Connection
from escrowmq.perf.histogram import Histogram
from escrowmq.perf.url import parse_url

QUEUES: Final = 10_000
CONNECTIONS: Final = 1000
SPREAD: Final = 1000
"""Queues that get messages in the harder case; a change of each is in every list."""
RATIO: Final = 1.1
"""The greatest p99 beside the poller, as a multiple of that without it."""
PAIRS: Final = 24
WINDOWS: Final = 1
"""Of each kind, in each pair."""
SECONDS: Final = 2
"""In each window: as many lists are asked for."""
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


class Poller:
    """The process that asks for the lists. `took` has the seconds of each time, but those before the first window."""

    def __init__(self, port: int) -> None:
        self.took: list[float] = []
        command = [sys.executable, "-m", "bench.poller", str(port), *_PATHS]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def warm_up(self) -> None:
        """Ask for the whole lists, and then for changes. Raises MeasureError."""
        self.begin(2)
        self.end(2)
        self.took.clear()

    def begin(self, times: int) -> None:
        """Begin to ask, every second."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{times}\n")
        self._process.stdin.flush()

    def end(self, times: int) -> None:
        """Wait for the answers. Raises MeasureError."""
        assert self._process.stdout is not None
        for _ in range(times):
            line = self._process.stdout.readline()
            if not line:
                raise MeasureError("the poller ended")
            self.took.append(float(line.split()[0]))


class Comparison:
    """The latencies of one load without and with something beside it, in pairs of histograms."""

    def __init__(self) -> None:
        self.alone, self.beside = Histogram(), Histogram()
        self.ratios: list[float] = []

    def add(self, alone: Histogram, beside: Histogram) -> None:
        """Add a pair."""
        self.alone.add(alone)
        self.beside.add(beside)
        self.ratios.append(beside.percentile(99) / alone.percentile(99))

    def figures(self, name: str) -> dict[str, float]:
        """Return the median of the ratios, and p99 of both kinds over all windows, in ms."""
        return {
            name: median(self.ratios),
            f"{name}.beside": self.beside.percentile(99) / 1e6,
            f"{name}.alone": self.alone.percentile(99) / 1e6,
        }


class HttpLists(Scenario):
    """10,000 queues and 1,000 connections are listed over HTTP every second, beside 5,000 messages per second."""

    fresh = True
    peers = ()
    alternations = 1
    own = HttpEscrowMQ

    def __init__(self, pairs: int = PAIRS, windows: int = WINDOWS, seconds: int = SECONDS) -> None:
        self._pairs, self._windows, self._seconds = pairs, windows, seconds
        name = "neighbours-http"
        title = "p99 at 5,000/s beside lists of 10,000 queues and 1,000 connections over HTTP each second"
        super().__init__(
            name,
            (
                Figure(name, title + ", divided by that without", "×", below=RATIO),
                Figure(f"{name}.beside", "— p99 beside the lists", "ms"),
                Figure(f"{name}.alone", "— p99 without them", "ms"),
                Figure(f"{name}.null", "— the same ratio of windows that are all without them", "×"),
                Figure(f"{name}.spread", "— the ratio with the 5,000/s spread over 1,000 of the queues", "×"),
                Figure(f"{name}.spread.beside", "— p99 of these beside the lists", "ms"),
                Figure(f"{name}.spread.alone", "— p99 of these without them", "ms"),
                Figure(f"{name}.list", "— both lists, median", "s"),
            ),
        )

    def measure(self, broker: Broker, settings: Settings) -> Measurement:
        if not isinstance(broker, HttpEscrowMQ):
            raise MeasureError(f"{broker.name} has no HTTP process of ours")
        broker.wait_for_http()
        with channel_of(broker) as connection, ExitStack() as stack:
            names = operations.names_of(max(int(QUEUES * settings.scale), 10), "listed")
            operations.declared(connection, names)
            for _ in range(max(int(CONNECTIONS * settings.scale), 10)):
                stack.enter_context(Connection(parse_url(broker.url), "bench idle", operations.TIMEOUT))
            single = stack.enter_context(closing(Trip091(broker)))
            spread = stack.enter_context(closing(Trip091(broker, names[: int(SPREAD * settings.scale) or 10])))
            poller = stack.enter_context(Poller(broker.http_port))
            poller.warm_up()
            figures = self._measure(single, spread, poller)
            return Measurement(figures | {f"{self.name}.list": median(poller.took)})

    def _measure(self, single: Trip, spread: Trip, poller: Poller) -> dict[str, float]:
        compared, null, harder = Comparison(), Comparison(), Comparison()
        for _ in range(self._pairs):
            before, after, beside, spread_alone, spread_beside = (Histogram() for _ in range(5))
            for _ in range(self._windows):
                self._window(single, before)
                self._window(single, beside, poller)
                self._window(single, after)
                self._window(spread, spread_alone)
                self._window(spread, spread_beside, poller)
            null.add(before, after)
            harder.add(spread_alone, spread_beside)
            before.add(after)
            compared.add(before, beside)
        return {
            **compared.figures(self.name),
            **harder.figures(f"{self.name}.spread"),
            f"{self.name}.null": median(null.ratios),
        }

    def _window(self, trip: Trip, latencies: Histogram, poller: Poller | None = None) -> None:
        if poller is not None:
            poller.begin(self._seconds)
        with Neighbour(trip, EVERY_SECONDS, latencies, closes=False):
            time.sleep(self._seconds)
        if poller is not None:
            poller.end(self._seconds)
