"""Put the figures of bench/results/latest.json into README.md, between two marks.

`python -m tools.readme_figures` writes them; with `--check` it fails when README.md shows anything else.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

from tools.pages import ROOT, asked_to_check

README: Final = ROOT / "README.md"
RESULTS: Final = ROOT / "bench" / "results" / "latest.json"
BEGIN: Final = "<!-- figures: written by `make docs` from bench/results/latest.json; do not edit -->"
END: Final = "<!-- end of figures -->"

# By scenario, the figures that the README shows, and how it calls them.
ROWS: Final[dict[tuple[str, str], str]] = {
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
}


def number(value: float, unit: str) -> str:
    """A figure for people, with its unit."""
    text = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return f"{text} {unit}".rstrip()


def cell(figure: dict[str, Any], broker: str) -> str:
    values = figure["brokers"].get(broker)
    return number(values["median"], figure["unit"]) if values else "–"


def table(results: dict[str, Any]) -> str:
    """Medians of both brokers, as Markdown."""
    rows = []
    for (scenario, name), title in ROWS.items():
        figure = results["scenarios"].get(scenario, {}).get("figures", {}).get(name)
        if figure is not None:
            ratio = f"{figure['ratio']:.1f}×" if figure["ratio"] is not None else "–"
            rows.append(f"| {title} | {cell(figure, 'EscrowMQ')} | {cell(figure, 'RabbitMQ')} | {ratio} |")
    head = ["| | EscrowMQ | RabbitMQ | ratio |", "|---|---:|---:|---:|"]
    return "\n".join([*head, *rows])


def machine(results: dict[str, Any]) -> str:
    """On what it was measured."""
    facts = results["machine"]
    where = (
        f"{facts['cpu']}, {facts['cores']} cores shared by broker and load tool, {facts['memory_mb']:,} MB, "
        f"{facts['filesystem']}, Python {facts['python']}"
    )
    return f"Medians, on: {where}. Versions: {', '.join(results['versions'].values())}."


def figures(results: dict[str, Any] | None) -> str:
    """What stands between the marks."""
    if results is None:
        return "No results are recorded yet; `make bench` measures both brokers and writes them."
    return f"{table(results)}\n\n{machine(results)}"


def render(readme: str, results: dict[str, Any] | None) -> str:
    """The README with these figures. Raises ValueError if the marks are not there."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"README.md has no line {END if begin else BEGIN}")
    return f"{before}{BEGIN}\n\n{figures(results)}\n\n{END}{after}"


def main(arguments: list[str] | None = None, readme: Path = README, results: Path = RESULTS) -> int:
    """Write the README or, with `--check`, compare it; the exit code."""
    check = asked_to_check(arguments, "Put the figures of the benchmark into README.md.")
    found = json.loads(results.read_text(encoding="utf-8")) if results.exists() else None
    before = readme.read_text(encoding="utf-8")
    after = render(before, found)
    if check and after != before:
        print("the figures in README.md are stale; run: make docs", file=sys.stderr)
        return 1
    if not check:
        readme.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
