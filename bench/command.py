"""`make bench`: measure EscrowMQ and other brokers in alternation, with the same tool on the same disk."""

from __future__ import annotations

import fnmatch
import shutil
import signal
import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import click
from rich.console import Console

from bench import report
from bench.brokers import Broker, BrokerError, EscrowMQ, RabbitMQ, TimedEscrowMQ
from bench.kafka_broker import Kafka, KafkaSynced
from bench.measure import MeasureError, Measurement, machine, sync_rate
from bench.peers import Artemis, BrokerJ
from bench.rabbitmq_cluster import RabbitMQCluster
from bench.rocketmq_broker import RocketMQ
from bench.scenario import Scenario, Settings
from bench.scenarios import SCENARIOS

HERE = Path(__file__).resolve().parent
FULL = Settings(duration=5.0, scale=1.0)
QUICK = Settings(duration=1.0, scale=0.05)

Kinds = dict[str, type[Broker]]


class Bench:
    """Runs scenarios one after the other, and stops every broker that it starts."""

    def __init__(self, console: Console, directory: Path, kinds: Kinds, settings: Settings, alternations: int) -> None:
        self._console = console
        self._directory = directory
        self._kinds = kinds
        self._settings = settings
        self._alternations = alternations
        self._running: list[Broker] = []

    def run(self, scenario: Scenario) -> dict[str, Any]:
        """Measure one scenario and return its entry for the report."""
        kinds = {name: kind for name, kind in self._kinds.items() if name in (report.OWN, *scenario.peers)}
        self._console.print(f"[bold]{scenario.name}[/]")
        runs: report.Runs = {name: [] for name in kinds}
        errors: dict[str, str] = {}
        syncs = sync_rate(self._directory)
        try:
            if scenario.fresh:
                self._fresh(scenario, kinds, runs, errors)
            else:
                self._side_by_side(scenario, kinds, runs, errors)
        finally:
            self.stop()
        return {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "syncs_per_second": round((syncs + sync_rate(self._directory)) / 2),
            "commits_per_sync": report.commits_per_sync(runs),
            "figures": report.figures_of(scenario, runs),
            "errors": errors,
            "runs": {
                name: [asdict(measurement) for measurement in measurements] for name, measurements in runs.items()
            },
        }

    def _side_by_side(self, scenario: Scenario, kinds: Kinds, runs: report.Runs, errors: dict[str, str]) -> None:
        """Measure with all brokers running; those that are not measured are frozen."""
        brokers: dict[str, Broker] = {}
        for name in kinds:
            try:
                brokers[name] = self._start(scenario, name)
                scenario.warm_up(brokers[name], self._settings)
                brokers[name].freeze()
            except (BrokerError, MeasureError) as error:
                self._fail(name, error, errors)
        for _ in range(scenario.alternations or self._alternations):
            for name, broker in brokers.items():
                if name in errors:
                    continue
                broker.thaw()
                try:
                    broker.settle()
                    self._note(scenario, name, runs, scenario.measure(broker, self._settings))
                except (BrokerError, MeasureError) as error:
                    self._fail(name, error, errors)
                broker.freeze()

    def _fresh(self, scenario: Scenario, kinds: Kinds, runs: report.Runs, errors: dict[str, str]) -> None:
        """Measure one broker at a time, each time on an empty directory."""
        for _ in range(scenario.alternations or self._alternations):
            for name in kinds:
                if name in errors:
                    continue
                try:
                    broker = self._start(scenario, name)
                    self._note(scenario, name, runs, scenario.measure(broker, self._settings))
                except (BrokerError, MeasureError) as error:
                    self._fail(name, error, errors)
                self.stop()

    def _start(self, scenario: Scenario, name: str) -> Broker:
        directory = self._directory / scenario.name / name
        shutil.rmtree(directory, ignore_errors=True)
        kind = self._kinds[name]
        if kind is EscrowMQ:
            kind = TimedEscrowMQ if scenario.timed else scenario.own
        broker = kind(directory)
        self._running.append(broker)
        broker.start()
        return broker

    def _note(self, scenario: Scenario, name: str, runs: report.Runs, measurement: Measurement) -> None:
        runs[name].append(measurement)
        figures = ", ".join(
            f"{figure.name} {measurement.figures[figure.name]:,.6g} {figure.unit}".rstrip()
            for figure in scenario.figures
        )
        self._console.print(f"  {name}: {figures}", highlight=False)

    def _fail(self, name: str, error: Exception, errors: dict[str, str]) -> None:
        errors[name] = str(error)
        self._console.print(f"  [red]{name}: {error}[/]")

    def stop(self) -> None:
        """Stop the running brokers and delete their data."""
        while self._running:
            broker = self._running.pop()
            try:
                broker.stop()
            except BrokerError as error:
                self._console.print(f"  [red]{error}[/]")
            finally:
                broker.remove()


def broker_kinds(console: Console, only: str | None) -> Kinds:
    """Return the brokers that can be measured."""
    kinds: Kinds = {}
    for kind, missing in (
        (EscrowMQ, None),
        (RabbitMQ, None if RabbitMQ.installed() else "Debian's package rabbitmq-server is not installed"),
        (RabbitMQCluster, None if RabbitMQ.installed() else "Debian's package rabbitmq-server is not installed"),
        (Artemis, Artemis.missing()),
        (BrokerJ, BrokerJ.missing()),
        (RocketMQ, RocketMQ.missing()),
        (Kafka, Kafka.missing()),
        (KafkaSynced, KafkaSynced.missing()),
    ):
        if only in (None, kind.name.lower()):
            if missing is None:
                kinds[kind.name] = kind
            else:
                console.print(f"{kind.name} is skipped: {missing}.")
    return kinds


def chosen(value: str) -> list[str]:
    """Return the scenarios that are named, or that match a pattern, in the order in which they run.

    Raises click.BadParameter for a name or a pattern of no scenario.
    """
    patterns = value.split(",")
    for pattern in patterns:
        if not fnmatch.filter(SCENARIOS, pattern):
            raise click.BadParameter(f"unknown scenario {pattern!r}; the scenarios are {', '.join(SCENARIOS)}")
    return [name for name in SCENARIOS if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]


def _names(_: click.Context, __: click.Parameter, value: str | None) -> list[str]:
    return list(SCENARIOS) if value is None else chosen(value)


def _terminated(*_: object) -> NoReturn:
    raise KeyboardInterrupt


@click.command()
@click.option(
    "--scenarios",
    callback=_names,
    help="The scenarios to measure, separated by commas (all); `*` stands for any characters.",
)
@click.option(
    "--alternations", type=click.IntRange(min=1), help="How often each broker is measured (5; 1 with --quick)."
)
@click.option(
    "--scale",
    type=click.FloatRange(min=0, max=1, min_open=True),
    help="The factor for the size of backlogs and crowds (1; 0.05 with --quick).",
)
@click.option(
    "--duration", type=click.FloatRange(min=0, min_open=True), help="Seconds of publishing (5; 1 with --quick)."
)
@click.option("--quick", is_flag=True, help="Short runs and small backlogs, to check that everything works.")
@click.option(
    "--only",
    type=click.Choice(
        ["escrowmq", "rabbitmq", "rabbitmq cluster", "artemis", "broker-j", "rocketmq", "kafka", "kafka synced"]
    ),
    help="Measure only this broker.",
)
@click.option(
    "--data", type=click.Path(path_type=Path), default=HERE / "data", help="The directory for the brokers' data."
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="The result file (bench/results/latest.json for all brokers at full size, else none).",
)
def main(
    scenarios: list[str],
    alternations: int | None,
    scale: float | None,
    duration: float | None,
    quick: bool,
    only: str | None,
    data: Path,
    output: Path | None,
) -> None:
    """Measure EscrowMQ and other brokers side by side; exit with status 1 if a measurement failed."""
    console = Console(width=None if sys.stdout.isatty() else 200)
    signal.signal(signal.SIGTERM, _terminated)
    full = not quick and scale is None and duration is None and only is None
    if output is None and full:
        output = HERE / "results" / "latest.json"
    kinds = broker_kinds(console, only)
    data.mkdir(parents=True, exist_ok=True)
    # Use a subfolder, so that only our own files are deleted at the end.
    work = Path(tempfile.mkdtemp(prefix="run-", dir=data))
    defaults = QUICK if quick else FULL
    settings = Settings(duration or defaults.duration, scale or defaults.scale)
    bench = Bench(console, work, kinds, settings, alternations or (1 if quick else 5))
    facts = machine(work)
    versions = {name: kind(work / name).version() for name, kind in kinds.items()}
    console.print(", ".join(versions.values()), facts, sep="\n", highlight=False)
    entries: dict[str, Any] = {}
    try:
        for name in scenarios:
            entries[name] = bench.run(SCENARIOS[name])
            if output is not None:
                report.write(output, facts, versions, entries)
    except KeyboardInterrupt:
        console.print("interrupted")
    finally:
        bench.stop()
        shutil.rmtree(work, ignore_errors=True)
        with suppress(OSError):  # another run's folder is in it
            data.rmdir()
    report.show(console, entries.values())
    if output is not None:
        console.print(f"written to {output}")
    if any(entry["errors"] for entry in entries.values()):
        sys.exit(1)
