"""Write the figures of bench/results/latest.json into the pages that show them, between two marks.

`python -m tools.figures` writes the pages. With `--check` it fails if a page shows other figures.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tools.pages import ROOT, asked_to_check

RESULTS: Final = ROOT / "bench" / "results" / "latest.json"
BEGIN: Final = "<!-- figures: written by `make docs` from bench/results/latest.json; do not edit -->"
END: Final = "<!-- end of figures -->"

NO_RESULTS: Final = "No results are recorded yet; `make bench` measures the brokers and writes them."
OWN: Final = "EscrowMQ"
MARKS: Final = ("\\*", "†", "‡")
"""Of rows that were measured on other machines than most."""

Rows = Mapping[tuple[str, str], str]
"""The titles of the figures that a page shows, by scenario and figure."""

Pairs = Mapping[str, tuple[str, str]]
"""Scenarios that differ only in their messages, uniform and varied, by the title that they share."""

Neighbours = Mapping[str, str]
"""What another client does at the same time, by scenario."""


@dataclass(frozen=True, slots=True)
class Grid:
    """A table of one scenario's figures, whose names are `SCENARIO.COLUMN.ROW`. Rows and columns have titles."""

    scenario: str
    columns: Mapping[str, str]
    rows: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Rows that are compared with other brokers than RabbitMQ. `name` tells them apart where machines are listed."""

    name: str
    sentence: str
    peers: tuple[str, ...]
    rows: Rows


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures that a page shows."""

    rows: Rows
    pairs: Pairs = field(default_factory=dict)
    """Shown before the rows, side by side."""
    neighbours: Neighbours = field(default_factory=dict)
    """Shown after the rows, if any of them was measured."""
    comparisons: tuple[Comparison, ...] = ()
    """Shown at the end, each if any of its rows was measured."""
    grid: Grid | None = None
    """Shown instead of rows, if it was measured."""


_PAIRS: Final[Pairs] = {
    "transient, acknowledged": ("acked", "varied"),
    "persistent, confirms, acknowledged": ("confirms", "varied-confirms"),
    "persistent, transactions of 100": ("tx100", "varied-tx100"),
}
_README: Final[Rows] = {
    ("transient", "transient"): "transient, auto-ack",
    ("correlation-ids", "correlation-ids"): "transient, acknowledged, own correlation-id in each message",
    ("headers", "headers"): "transient, acknowledged, own header table in each message",
    ("varied-topic", "varied-topic"): "persistent, confirms, varied, 10,000 routing keys, 1,000 topic bindings",
    ("many", "many"): "persistent, confirms, 10 producers, 10 consumers, 10 queues",
    ("random10000", "random10000"): "persistent, confirms, each to a random one of 10,000 queues",
    ("fanout", "fanout"): "persistent, confirms, fanout to 10 queues",
    ("large-16k", "large-16k"): "transient, acknowledged, bodies of 16 KiB",
    ("large-256k", "large-256k"): "transient, acknowledged, bodies of 256 KiB",
    ("large-4m", "large-4m"): "transient, acknowledged, bodies of 4 MiB",
    ("large-16k-confirms", "large-16k-confirms"): "persistent, confirms, bodies of 16 KiB",
    ("large-256k-confirms", "large-256k-confirms"): "persistent, confirms, bodies of 256 KiB",
    ("large-4m-confirms", "large-4m-confirms"): "persistent, confirms, bodies of 4 MiB",
    ("rpc1", "rpc1"): "requests and replies, 1 outstanding",
    ("rpc50", "rpc50"): "requests and replies, 50 outstanding",
    ("get", "get"): "`basic.get`, one by one",
    ("get-pipelined", "get-pipelined"): "`basic.get`, 100 outstanding",
    ("crowd1", "crowd1"): "1,000 consumers on one queue, prefetch 1",
    ("tx1", "tx1"): "persistent, transactions of 1, one channel",
    ("tx1x64", "tx1x64"): "persistent, transactions of 1, 64 channels",
    ("latency", "latency"): "publish to deliver at 5,000 confirmed/s, p99",
    ("backlog", "backlog.memory"): "memory with a backlog of 1,000,000 messages of 1 kB",
    ("backlog", "backlog.restart"): "restart with that backlog",
    ("history", "history.restart"): "restart with 1,000 messages, after 10,000,000 others",
    ("long-backlog", "long-backlog.memory"): "memory with a backlog of 10,000,000 messages of 100 B",
    ("xa", "xa.concurrent"): "two-phase commits, 32 branches at once",
    ("spark", "spark.read"): "Spark reads a queue, 200 B",
    ("spark", "spark.write"): "Spark writes to a queue, 200 B",
    ("spark", "spark.through"): "queue to Spark to queue, 200 B, exactly once",
    ("audit", "audit.varied-rate"): "audit of the journal by Spark, 10,000,000 varied messages",
    ("audit", "audit.rate"): "— uniform messages",
}
_NEIGHBOURS: Final[Neighbours] = {
    "neighbours-commit": "commits 300,000 messages",
    "neighbours-commit-apart": "commits 300,000 messages, each with its own time to live",
    "neighbours-commit-amqp10": "commits 100,000 messages over AMQP 1.0",
    "neighbours-reject": "rejects 300,000 deliveries into another queue at once",
    "neighbours-lost": "disappears with 300,000 unacknowledged deliveries",
    "neighbours-fanout": "publishes 2,000 messages to 1,000 queues each",
    "neighbours-exchanges": "publishes 2,000 messages through 300 exchanges bound to each other",
    "neighbours-list": "lists 20,000 queues 100 times",
    "neighbours-consumers": "subscribes 10,000 consumers to one queue",
    "neighbours-headers": "binds a queue 3,000 times to a headers exchange, and publishes through it",
    "neighbours-decide": "decides 9,000 branches at once",
    "neighbours-stream": "reads a stream of 60,000 messages that were published singly",
    "neighbours-delete": "deletes a queue with 300,000 messages, and one with 20,000 bindings",
    "neighbours-lost-links": "disappears with 4,000 AMQP 1.0 links",
    "neighbours-patterns": "has 1,000 names compared with an exponential pattern",
    "neighbours-sockets": "opens 10,050 connections and never logs in",
    "neighbours-logins": "logs in wrongly from 500 addresses",
    "neighbours-uploads": "breaks off 300 uploads of 4 MiB, without any permission",
    "neighbours-held": "holds 253 MiB of deliveries, and 60 MiB in an idle transaction",
    "neighbours-hung": "reads nothing of the 64 MiB that it consumes",
    "neighbours-declares": "declares 6,000 queues with 15 kB of arguments each",
}
_LINK_ROWS: Final[Rows] = {
    ("amqp10-presettled", "amqp10-presettled"): "presettled, transient",
    ("amqp10-varied-presettled", "amqp10-varied-presettled"): "— varied",
    ("amqp10-first", "amqp10-first"): "receiver settles first, durable",
    ("amqp10-varied-first", "amqp10-varied-first"): "— varied",
    ("amqp10-second", "amqp10-second"): "receiver settles second, durable termini; the others: first",
    ("amqp10-varied-second", "amqp10-varied-second"): "— varied",
    ("amqp10-tx100", "amqp10-tx100"): "durable, transactions of 100",
    ("amqp10-varied-tx100", "amqp10-varied-tx100"): "— varied",
    ("amqp10-latency", "amqp10-latency"): "publish to deliver at 5,000 durable/s, p99",
    ("amqp10-varied-latency", "amqp10-varied-latency"): "— varied",
    ("amqp10-held-received", "amqp10-held-received.memory"): "memory, 1,000,000 unsettled exactly-once deliveries",
    ("amqp10-held-received", "amqp10-held-received.restart"): "— restart with them",
    ("amqp10-held-received", "amqp10-held-received.restart-killed"): "— restart with them after `kill -9`",
    ("amqp10-held-published", "amqp10-held-published.memory"): "memory, 1,000,000 that the producer has not settled",
    ("amqp10-held-published", "amqp10-held-published.restart"): "— restart with them",
    ("amqp10-held-published", "amqp10-held-published.restart-killed"): "— restart with them after `kill -9`",
}
_SESSION_ROWS: Final[Rows] = {
    ("amqp010-transient", "amqp010-transient"): "transient, window credit",
    ("amqp010-varied-transient", "amqp010-varied-transient"): "— varied",
    ("amqp010-durable", "amqp010-durable"): "durable, completed before they count, accepted",
    ("amqp010-varied-durable", "amqp010-varied-durable"): "— varied",
    ("amqp010-varied-tx100", "amqp010-varied-tx100"): "— varied, transactions of 100",
    ("amqp010-xa32", "amqp010-xa32"): "two-phase commits, 32 branches at once",
    ("amqp010-xa", "amqp010-xa.concurrent-share"): "— divided by those over AMQP 0-9-1",
    ("amqp010-xa", "amqp010-xa.one"): "two-phase commits, one branch at a time",
    ("amqp010-xa", "amqp010-xa.one-share"): "— divided by those over AMQP 0-9-1",
}
_ROCKETMQ_ROWS: Final[Rows] = {
    ("rocketmq-remoting", "rocketmq-remoting.tx1-100"): "remoting: transactions, one at a time, 100 B",
    ("rocketmq-remoting", "rocketmq-remoting.tx1-1000"): "— 1 kB",
    ("rocketmq-remoting", "rocketmq-remoting.tx64-100"): "transactions, 64 in flight, 100 B",
    ("rocketmq-remoting", "rocketmq-remoting.tx64-1000"): "— 1 kB",
    ("rocketmq-remoting", "rocketmq-remoting.send64-100"): "sends, 64 in flight, 100 B",
    ("rocketmq-remoting", "rocketmq-remoting.send64-1000"): "— 1 kB",
    ("rocketmq-remoting", "rocketmq-remoting.batch32-100"): "batches of 32, one at a time, 100 B",
    ("rocketmq-remoting", "rocketmq-remoting.batch32-1000"): "— 1 kB",
    ("rocketmq-remoting", "rocketmq-remoting.batch32-4-100"): "batches of 32, 4 at a time, 100 B",
    ("rocketmq-remoting", "rocketmq-remoting.batch32-4-1000"): "— 1 kB",
    ("rocketmq-remoting", "rocketmq-remoting.pull-100"): "pulled, offsets committed, 100 B",
    ("rocketmq-remoting", "rocketmq-remoting.pull-1000"): "— 1 kB",
    ("rocketmq-grpc", "rocketmq-grpc.tx64-100"): "gRPC: transactions, 64 in flight, 100 B",
    ("rocketmq-grpc", "rocketmq-grpc.tx64-1000"): "— 1 kB",
    ("rocketmq-grpc", "rocketmq-grpc.send64-100"): "sends, 64 in flight, 100 B",
    ("rocketmq-grpc", "rocketmq-grpc.send64-1000"): "— 1 kB",
    ("rocketmq-grpc", "rocketmq-grpc.pop-100"): "received, each acknowledged, 100 B",
    ("rocketmq-grpc", "rocketmq-grpc.pop-1000"): "— 1 kB",
    ("rocketmq-half-due", "rocketmq-half-due"): "100,000 half messages fall due at once: all checked",
    ("rocketmq-half-due", "rocketmq-half-due.p99"): "— latency p99 of another client meanwhile",
    ("half-pending", "half.memory"): "memory, 1,000,000 pending half messages",
    ("half-pending", "half.restart"): "— restart with them",
}


def _replicated_rows(engine: str) -> Rows:
    """Return the rows of three brokers on an engine."""
    name = f"replicated-{engine.lower()}"
    titles = {
        "varied-confirms": f"{engine}: persistent, confirms, varied",
        "confirms": "— uniform",
        "tx1x64": "— transactions of 1, 64 channels, varied",
        "tx1": "— transactions of 1, one channel, varied",
        "kill": "— `kill -9` of the leader to the next confirm",
        "freeze": "— `kill -STOP` of the leader to the next confirm",
        "handover": "— handover on purpose to the next confirm",
        "handover.longest": "— the longest of ten",
        "standby": "— an empty standby follows, behind 10 GB of journal of which 200 MB live",
        "standby.copied": "— bytes that it has copied",
    }
    return {(f"{name}-{key.partition('.')[0]}", f"{name}-{key}"): title for key, title in titles.items()}


_JOBS: Final = {"read": "read", "write": "written", "through": "read and written"}
_KINDS_OF_ROWS: Final = {
    "varied-all": "varied, all columns",
    "varied-body": "varied, body alone",
    "uniform-all": "uniform, all columns",
    "uniform-body": "uniform, body alone",
}


def _spark_rows(scenario: str, kinds: tuple[str, ...]) -> Rows:
    """Return the rows of a comparison of Spark's connectors."""
    return {
        (scenario, f"{scenario}.{job}-{kind}"): f"{done}, {_KINDS_OF_ROWS[kind]}"
        for job, done in _JOBS.items()
        for kind in kinds
    }


def _spark_costs() -> Rows:
    """Return the rows of queries over uniform and varied messages, each with its processor time."""
    found: dict[tuple[str, str], str] = {}
    for path, way in (("read", "queue → Spark"), ("through", "queue → Spark → queue")):
        for kind, title in reversed(_KINDS_OF_ROWS.items()):
            name = f"spark-rows.{kind}-{path}"
            found["spark-rows", name] = f"{way}, {title}"
            found["spark-rows", f"{name}.spark"] = "— processor time of Spark for each row"
            found["spark-rows", f"{name}.broker"] = "— that of the broker"
    return found


_LINKS: Final = Comparison(
    "AMQP 1.0", "AMQP 1.0. The ratio is to the better of the two others.", ("Artemis", "Broker-J"), _LINK_ROWS
)
_SESSIONS: Final = Comparison("AMQP 0-10", "AMQP 0-10, with window credit.", ("Broker-J",), _SESSION_ROWS)
_ROCKETMQ: Final = Comparison(
    "RocketMQ", "RocketMQ's protocols. Both brokers sync before they answer.", ("RocketMQ",), _ROCKETMQ_ROWS
)

_REPLICATED: Final = Comparison(
    "replicated",
    "Three brokers with one journal on three nodes of an engine, and three nodes of RabbitMQ with a quorum queue, on "
    "one machine. A confirm waits for the leader's disk and for two of three nodes of the engine.",
    ("RabbitMQ cluster",),
    {**_replicated_rows("Kafka"), **_replicated_rows("NATS")},
)


def _kafka(*kinds: str) -> tuple[Comparison, ...]:
    """Return the comparisons with Kafka for these kinds of rows."""
    rows = {peer: _spark_rows(f"spark-{peer}", kinds) for peer in ("kafka", "kafka-synced")}
    unsynced = (
        "Spark's rows through our connector, exactly once and synced, and through Spark's own connector for Kafka, "
        "which leaves syncing to the system and may repeat rows."
    )
    return (
        Comparison("Spark", unsynced, ("Kafka",), rows["kafka"]),
        Comparison(
            "Spark, synced", "The same, with Kafka syncing each append.", ("Kafka synced",), rows["kafka-synced"]
        ),
    )


_KINDS: Final[Rows] = {
    ("confirms", "confirms"): "messages with confirms, 2000 in flight",
    ("tx100", "tx100"): "messages in `tx`, 100 each, one at a time",
    ("tx1", "tx1"): "`tx` of one message, one at a time",
    ("xa", "xa.one-phase"): "branches of one message, one phase, one at a time",
    ("xa", "xa.two-phase"): "— two phases, one at a time",
    ("xa", "xa.concurrent"): "— two phases, 32 at once",
    ("xa", "xa.per-sync"): "— branches per sync, 32 at once",
}
_SPARK: Final[Rows] = {
    ("spark", "spark.read"): "queue → Spark, rows discarded",
    ("spark", "spark.read_twin"): "— for comparison: rows generated by Spark itself",
    ("spark", "spark.write"): "Spark → queue",
    ("spark", "spark.through_twin"): "— for comparison: Spark's rate source to no-op sink, in as many micro-batches",
    ("spark", "spark.through"): "queue → Spark → queue, one global transaction for each micro-batch",
    ("spark", "spark.trigger"): "a trigger with 10 messages",
    **_spark_costs(),
}
_AUDIT: Final[Rows] = {
    ("audit", "audit.varied-rate"): "10,000,000 varied messages of 100 bytes, from start to verdict",
    ("audit", "audit.varied-memory"): "— memory of all processes of the audit",
    ("audit", "audit.varied-long"): "— 50,000,000, time for each, relative to that",
    ("audit", "audit.varied-long-memory"): "— memory of all processes of the audit of 50,000,000",
    ("audit", "audit.rate"): "10,000,000 uniform messages of 100 bytes, from start to verdict",
    ("audit", "audit.twice"): "— time, relative to half as many messages",
    ("audit", "audit.memory"): "— memory of all processes of the audit",
    ("audit", "audit.memory-twice"): "— memory, relative to half as many messages",
    ("audit", "audit.broker-share"): "rate of confirmed messages during an audit, relative to the rate without one",
}
_MODELS: Final = Grid(
    "models",
    {"tx": "`tx`, row first", "half": "half message", "xa": "XA", "link": "exactly-once link"},
    {
        "rate": "one user",
        "many": "32 users at once",
        "round-trips": "round trips to the broker, for one message of one user",
        "syncs": "syncs of the broker, for one message of one user",
        "syncs-many": "— of 32 users",
        "cpu": "CPU time of the broker, for one message of one user",
        "cpu-many": "— of 32 users",
        "client-cpu": "CPU time of the client, for one message of one user",
    },
)
_EXPLAINED: Final = (
    "Uniform messages are alike except for their bodies. Each varied message has its own size, message-id, "
    "correlation-id, timestamp and header table, as messages of most applications do."
)
_GUIDES: Final = ROOT / "docs" / "guides"
PAGES: Final[dict[Path, Figures]] = {
    ROOT / "README.md": Figures(
        _README, _PAIRS, _NEIGHBOURS, (_REPLICATED, _LINKS, _SESSIONS, _ROCKETMQ, *_kafka("varied-all", "uniform-all"))
    ),
    _GUIDES / "database-and-queue.md": Figures(_KINDS),
    _GUIDES / "from-queue-to-table.md": Figures(_SPARK, comparisons=_kafka(*_KINDS_OF_ROWS)),
    _GUIDES / "auditing.md": Figures(_AUDIT),
    _GUIDES / "choosing-a-transaction.md": Figures({}, grid=_MODELS),
}


def number(value: float, unit: str) -> str:
    """Return a figure for people, with its unit."""
    text = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return f"{text} {unit}".rstrip()


def cell(figure: dict[str, Any], broker: str) -> str:
    values = figure["brokers"].get(broker)
    return number(values["median"], figure["unit"]) if values else "–"


def times(ratio: float | None) -> str:
    """Format a ratio: with one decimal place, or below 1 with two significant digits."""
    if ratio is None:
        return "–"
    return f"{ratio:.1f}×" if ratio >= 1 else f"{ratio:.2g}×"


def table(results: dict[str, Any], wanted: Rows) -> str:
    """Format the medians of both brokers as a Markdown table."""
    rows = []
    for (scenario, name), title in wanted.items():
        figure = results["scenarios"].get(scenario, {}).get("figures", {}).get(name)
        if figure is not None:
            own, other = cell(figure, "EscrowMQ"), cell(figure, "RabbitMQ")
            rows.append(f"| {title}{mark(results, scenario)} | {own} | {other} | {times(figure['ratio'])} |")
    head = ["| | EscrowMQ | RabbitMQ | ratio |", "|---|---:|---:|---:|"]
    return "\n".join([*head, *rows])


def pair_table(results: dict[str, Any], pairs: Pairs) -> str:
    """Format uniform and varied traffic side by side, as a Markdown table and a sentence that says what they are."""
    rows = []
    for title, scenarios in pairs.items():
        cells = []
        for scenario in scenarios:
            figure = results["scenarios"].get(scenario, {}).get("figures", {}).get(scenario)
            if figure is None:
                cells += ["–"] * 3
            else:
                cells += [cell(figure, "EscrowMQ"), cell(figure, "RabbitMQ"), times(figure["ratio"])]
        rows.append(f"| {title}{mark(results, *scenarios)} | {' | '.join(cells)} |")
    head = [
        "| | uniform: EscrowMQ | RabbitMQ | ratio | varied: EscrowMQ | RabbitMQ | ratio |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    return "\n".join([*head, *rows, "", _EXPLAINED])


def neighbour_table(results: dict[str, Any], wanted: Neighbours) -> str:
    """Format the latency of one client's steady traffic beside another client's work; empty if none was measured."""
    rows = []
    for scenario, title in wanted.items():
        found = results["scenarios"].get(scenario, {}).get("figures", {})
        if scenario in found:
            longest = found[f"{scenario}.worst"]
            p99, worst = cell(found[scenario], OWN), cell(longest, OWN)
            rows.append(f"| {title}{mark(results, scenario)} | {p99} | {worst} |")
    if not rows:
        return ""
    head = ["Latency of 5,000 messages per second while another client …", ""]
    return "\n".join([*head, "| | p99 | longest |", "|---|---:|---:|", *rows])


def peer_table(results: dict[str, Any], wanted: Comparison) -> str:
    """Format the medians of EscrowMQ and of the peers; empty if none was measured."""
    rows, peers = [], wanted.peers
    for (scenario, name), title in wanted.rows.items():
        figure = results["scenarios"].get(scenario, {}).get("figures", {}).get(name)
        if figure is not None:
            cells = [cell(figure, broker) for broker in ("EscrowMQ", *peers)]
            rows.append(f"| {title}{mark(results, scenario)} | {' | '.join(cells)} | {times(figure['ratio'])} |")
    if not rows:
        return ""
    head = [
        wanted.sentence,
        "",
        f"| | EscrowMQ | {' | '.join(peers)} | ratio |",
        f"|---|---:|{'---:|' * len(peers)}---:|",
    ]
    return "\n".join([*head, *rows])


def grid_table(results: dict[str, Any], wanted: Grid) -> str:
    """Format the medians of one scenario, one column for each variant; empty if it was not measured."""
    found = results["scenarios"].get(wanted.scenario, {}).get("figures")
    if found is None:
        return ""
    rows = []
    for row, title in wanted.rows.items():
        cells = [cell(found[f"{wanted.scenario}.{column}.{row}"], OWN) for column in wanted.columns]
        rows.append(f"| {title} | {' | '.join(cells)} |")
    head = [f"| | {' | '.join(wanted.columns.values())} |", f"|---|{'---:|' * len(wanted.columns)}"]
    return "\n".join([*head, *rows])


def marked(results: dict[str, Any], wanted: Figures) -> tuple[dict[str, Any], str]:
    """Return the results with marks on the scenarios of other machines than most, and a text about the machines."""
    scenarios = [scenario for scenario, _ in wanted.rows]
    scenarios += [scenario for each in wanted.comparisons for scenario, _ in each.rows]
    scenarios += [*wanted.neighbours, *(scenario for pair in wanted.pairs.values() for scenario in pair)]
    if wanted.grid is not None:
        scenarios.append(wanted.grid.scenario)
    places = {
        scenario: place(results["scenarios"][scenario].get("machine", results["machine"]))
        for scenario in scenarios
        if scenario in results["scenarios"]
    }
    count = Counter(places.values())
    first, *others = sorted(count, key=lambda where: -count[where]) or [place(results["machine"])]
    marks = dict(zip(others, MARKS, strict=False))
    found = {
        scenario: values | {"mark": marks.get(places.get(scenario, first), "")}
        for scenario, values in results["scenarios"].items()
    }
    more = "".join(f" Rows with {mark} were measured on {where}." for where, mark in marks.items())
    versions = f"Versions: {', '.join(results['versions'].values())}."
    return results | {"scenarios": found}, f"Medians, on {first}.{more} {versions}"


def mark(results: dict[str, Any], *scenarios: str) -> str:
    """Return the mark of the scenarios' machine, after a space, or nothing."""
    marks = (results["scenarios"].get(scenario, {}).get("mark") for scenario in scenarios)
    return "".join(f" {each}" for each in dict.fromkeys(marks) if each)


def place(facts: dict[str, Any]) -> str:
    """Describe a machine."""
    return (
        f"{facts['cpu']}, {facts['cores']} cores shared by broker and load tool, {facts['memory_mb']:,} MB, "
        f"{facts['filesystem']}, Python {facts['python']}"
    )


def figures(results: dict[str, Any] | None, wanted: Figures) -> str:
    """Return the text between the marks."""
    if results is None:
        return NO_RESULTS
    results, machines = marked(results, wanted)
    if wanted.grid is not None:
        found = grid_table(results, wanted.grid)
        return f"{found}\n\n{machines}" if found else NO_RESULTS
    more = (
        neighbour_table(results, wanted.neighbours),
        *(peer_table(results, each) for each in wanted.comparisons),
    )
    parts = [table(results, wanted.rows), *filter(None, more), machines]
    if wanted.pairs:
        parts.insert(0, pair_table(results, wanted.pairs))
    return "\n\n".join(parts)


def render(text: str, results: dict[str, Any] | None, wanted: Figures) -> str:
    """Return a page with these figures. Raises ValueError if the marks are missing."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page lacks the line {END if begin else BEGIN}")
    return f"{before}{BEGIN}\n\n{figures(results, wanted)}\n\n{END}{after}"


def main(arguments: list[str] | None = None, pages: Mapping[Path, Figures] = PAGES, results: Path = RESULTS) -> int:
    """Write the pages, or with `--check` compare them. Returns the exit code."""
    check = asked_to_check(arguments, "Write the figures of the benchmark into the pages that show them.")
    found = json.loads(results.read_text(encoding="utf-8")) if results.exists() else None
    stale = False
    for page, wanted in pages.items():
        before = page.read_text(encoding="utf-8")
        try:
            after = render(before, found, wanted)
        except ValueError as error:
            print(f"{page.name}: {error}", file=sys.stderr)
            return 1
        if not check:
            page.write_text(after, encoding="utf-8")
        elif after != before:
            print(f"the figures in {page.name} are stale; run: make docs", file=sys.stderr)
            stale = True
    return int(stale)


if __name__ == "__main__":
    sys.exit(main())
