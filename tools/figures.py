"""Put the figures of bench/results/latest.json into the pages that show some, between two marks.

`python -m tools.figures` writes them; with `--check` it fails when a page shows anything else.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tools.pages import ROOT, asked_to_check

RESULTS: Final = ROOT / "bench" / "results" / "latest.json"
BEGIN: Final = "<!-- figures: written by `make docs` from bench/results/latest.json; do not edit -->"
END: Final = "<!-- end of figures -->"

Rows = Mapping[tuple[str, str], str]
"""By scenario, the figures that a page shows, and how it calls them."""

_README: Final[Rows] = {
    ("transient", "transient"): "transient, auto-ack",
    ("acked", "acked"): "transient, acknowledged",
    ("confirms", "confirms"): "persistent, confirms, acknowledged",
    ("many", "many"): "the same, 10 producers, 10 consumers, 10 queues",
    ("fanout", "fanout"): "persistent, confirms, fanout to 10 queues",
    ("tx100", "tx100"): "persistent, transactions of 100",
    ("tx1", "tx1"): "persistent, transactions of 1, one channel",
    ("tx1x64", "tx1x64"): "persistent, transactions of 1, 64 channels",
    ("latency", "latency"): "publish to deliver at 5,000 confirmed/s, p99",
    ("backlog", "backlog.memory"): "memory with 1,000,000 messages of 1 kB waiting",
    ("backlog", "backlog.restart"): "restart with them",
    ("history", "history.restart"): "restart after 10,000,000 messages, 1,000 left",
    ("long-backlog", "long-backlog.memory"): "memory with 10,000,000 messages of 100 B waiting",
    ("xa", "xa.concurrent"): "two-phase commits, 32 branches at once",
    ("spark", "spark.read"): "Spark reads a queue, 200 B",
    ("spark", "spark.write"): "Spark writes to a queue, 200 B",
    ("spark", "spark.through"): "queue to Spark to queue, 200 B, exactly once",
    ("audit", "audit.rate"): "audit of the journal by Spark",
}
_KINDS: Final[Rows] = {
    ("confirms", "confirms"): "messages with confirms, 2000 in flight",
    ("tx100", "tx100"): "messages in `tx`, 100 each, one at a time",
    ("tx1", "tx1"): "`tx` of one message, one at a time",
    ("xa", "xa.one-phase"): "branches of one message, one phase, one at a time",
    ("xa", "xa.two-phase"): "— two phases, one at a time",
    ("xa", "xa.concurrent"): "— two phases, 32 at once",
    ("xa", "xa.per-sync"): "— branches for each sync, 32 at once",
}
_SPARK: Final[Rows] = {
    ("spark", "spark.read"): "queue → Spark, nothing done with it",
    ("spark", "spark.read_twin"): "— rows that Spark makes up itself, instead",
    ("spark", "spark.write"): "Spark → queue",
    ("spark", "spark.through_twin"): "— Spark's rate source to its no-op sink, in as many micro-batches",
    ("spark", "spark.through"): "queue → Spark → queue, one global transaction for each micro-batch",
    ("spark", "spark.trigger"): "a trigger with 10 messages",
}
_AUDIT: Final[Rows] = {
    ("audit", "audit.rate"): "10,000,000 messages of 100 bytes, from start to verdict",
    ("audit", "audit.twice"): "— time by that for half of them",
    ("audit", "audit.memory"): "— memory of all its processes",
    ("audit", "audit.memory-twice"): "— memory by that for half of them",
    ("audit", "audit.broker-share"): "a broker's rate of confirmed messages beside an audit, by that without one",
}
_GUIDES: Final = ROOT / "docs" / "guides"
PAGES: Final[dict[Path, Rows]] = {
    ROOT / "README.md": _README,
    _GUIDES / "database-and-queue.md": _KINDS,
    _GUIDES / "from-queue-to-table.md": _SPARK,
    _GUIDES / "auditing.md": _AUDIT,
}


def number(value: float, unit: str) -> str:
    """A figure for people, with its unit."""
    text = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return f"{text} {unit}".rstrip()


def cell(figure: dict[str, Any], broker: str) -> str:
    values = figure["brokers"].get(broker)
    return number(values["median"], figure["unit"]) if values else "–"


def times(ratio: float | None) -> str:
    """A ratio for people: one decimal place, and below 1 two digits that count."""
    if ratio is None:
        return "–"
    return f"{ratio:.1f}×" if ratio >= 1 else f"{ratio:.2g}×"


def table(results: dict[str, Any], wanted: Rows) -> str:
    """Medians of both brokers, as Markdown."""
    rows = []
    for (scenario, name), title in wanted.items():
        figure = results["scenarios"].get(scenario, {}).get("figures", {}).get(name)
        if figure is not None:
            own, other = cell(figure, "EscrowMQ"), cell(figure, "RabbitMQ")
            rows.append(f"| {title} | {own} | {other} | {times(figure['ratio'])} |")
    head = ["| | EscrowMQ | RabbitMQ | ratio |", "|---|---:|---:|---:|"]
    return "\n".join([*head, *rows])


def machines(results: dict[str, Any], wanted: Rows) -> str:
    """On what it was measured; of several machines each with its rows."""
    rows: dict[str, list[str]] = {}
    for (scenario, _), title in wanted.items():
        if scenario in results["scenarios"]:
            facts = results["scenarios"][scenario].get("machine", results["machine"])
            rows.setdefault(place(facts), []).append(title.removeprefix("— "))
    versions = f"Versions: {', '.join(results['versions'].values())}."
    first, *others = sorted(rows, key=lambda where: -len(rows[where])) or [place(results["machine"])]
    more = "".join(f" On {where}: {'; '.join(rows[where])}." for where in others)
    return f"Medians, on: {first}.{more} {versions}"


def place(facts: dict[str, Any]) -> str:
    """A machine."""
    return (
        f"{facts['cpu']}, {facts['cores']} cores shared by broker and load tool, {facts['memory_mb']:,} MB, "
        f"{facts['filesystem']}, Python {facts['python']}"
    )


def figures(results: dict[str, Any] | None, wanted: Rows) -> str:
    """What stands between the marks."""
    if results is None:
        return "No results are recorded yet; `make bench` measures both brokers and writes them."
    return f"{table(results, wanted)}\n\n{machines(results, wanted)}"


def render(text: str, results: dict[str, Any] | None, wanted: Rows) -> str:
    """A page with these figures. Raises ValueError if the marks are not there."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no line {END if begin else BEGIN}")
    return f"{before}{BEGIN}\n\n{figures(results, wanted)}\n\n{END}{after}"


def main(arguments: list[str] | None = None, pages: Mapping[Path, Rows] = PAGES, results: Path = RESULTS) -> int:
    """Write the pages or, with `--check`, compare them; the exit code."""
    check = asked_to_check(arguments, "Put the figures of the benchmark into the pages that show some.")
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
