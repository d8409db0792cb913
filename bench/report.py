"""The report of the measurements: the table and the JSON file."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.measure import Measurement
from bench.scenario import Figure, Scenario

OWN = "EscrowMQ"
Runs = dict[str, list[Measurement]]
"""The measurements of a scenario by broker."""


def figures_of(scenario: Scenario, runs: Runs) -> dict[str, Any]:
    """Return minimum, median, maximum and all values by figure and broker, the ratio of medians, and the targets
    met.
    """
    document: dict[str, Any] = {}
    for figure in scenario.figures:
        entry: dict[str, Any] = {
            "title": figure.title,
            "unit": figure.unit,
            "target": target_text(figure),
            "brokers": {},
        }
        for broker, measurements in runs.items():
            values = [measurement.figures[figure.name] for measurement in measurements]
            if values:
                entry["brokers"][broker] = {
                    "min": min(values),
                    "median": median(values),
                    "max": max(values),
                    "values": values,
                }
        entry["ratio"] = _ratio(figure, entry["brokers"])
        entry["met"] = _met(figure, entry)
        document[figure.name] = entry
    return document


def _ratio(figure: Figure, brokers: dict[str, dict[str, Any]]) -> float | None:
    """Return EscrowMQ's median divided by that of the best other broker; None if one of them is missing."""
    others = [values["median"] for name, values in brokers.items() if name != OWN]
    best = (max if figure.ratio_at_most is None else min)(others, default=None)
    if OWN not in brokers or not best:
        return None
    ratio: float = brokers[OWN]["median"] / best
    return ratio


def target_text(figure: Figure) -> str:
    """Return a figure's targets in readable form; empty if it has none."""
    parts = []
    for symbol, bound, suffix in (
        ("≥", figure.ratio_at_least, "×"),
        ("≤", figure.ratio_at_most, "×"),
        ("≥", figure.at_least, ""),
        ("<", figure.below, f" {figure.unit}"),
    ):
        if bound is not None:
            parts.append(f"{symbol} {bound:g}{suffix}")
    return ", ".join(parts)


def _met(figure: Figure, entry: dict[str, Any]) -> bool | None:
    """Return whether every target is met; None if there is none, or if it needs a measurement that was not taken."""
    own = entry["brokers"].get(OWN)
    ratio = entry["ratio"]
    checks: list[bool | None] = []
    if figure.ratio_at_least is not None:
        checks.append(None if ratio is None else ratio >= figure.ratio_at_least)
    if figure.ratio_at_most is not None:
        checks.append(None if ratio is None else ratio <= figure.ratio_at_most)
    if figure.at_least is not None:
        checks.append(None if own is None else own["median"] >= figure.at_least)
    if figure.below is not None:
        checks.append(None if own is None else own["median"] < figure.below)
    if False in checks:
        return False
    return None if not checks or None in checks else True


def commits_per_sync(runs: Runs) -> float | None:
    """Return the median over the measurements in which the broker counted its syncs."""
    values = [m.details["commits_per_sync"] for m in runs.get(OWN, []) if "commits_per_sync" in m.details]
    return median(values) if values else None


def table(entries: Iterable[dict[str, Any]]) -> Table:
    """Return the readable report of entries from the JSON file."""
    result = Table(title="minimum / median / maximum", title_justify="left")
    result.add_column("scenario")
    result.add_column(OWN, justify="right")
    result.add_column("others", justify="right")
    result.add_column("ratio", justify="right")
    result.add_column("target", justify="right")
    result.add_column("")
    result.add_column("syncs/s of the disk", justify="right")
    result.add_column("commits per sync", justify="right")
    for entry in entries:
        shared = entry["commits_per_sync"]
        context = [f"{entry['syncs_per_second']:,.0f}", "" if shared is None else f"{shared:,.1f}"]
        for figure in entry["figures"].values():
            title = figure["title"] + (f", {figure['unit']}" if figure["unit"] else "")
            result.add_row(
                title,
                _spread(figure["brokers"].get(OWN)),
                "\n".join(f"{name} {_spread(each)}" for name, each in figure["brokers"].items() if name != OWN) or "—",
                "" if figure["ratio"] is None else f"{figure['ratio']:.2f}×",
                figure["target"],
                {True: "[green]met[/]", False: "[red]missed[/]", None: ""}[figure["met"]],
                *context,
            )
            context = ["", ""]
        for broker, error in entry["errors"].items():
            result.add_row(f"[red]{broker}: {error}[/]")
    return result


def _spread(values: dict[str, Any] | None) -> str:
    if values is None:
        return "—"
    return " / ".join(_number(values[name]) for name in ("min", "median", "max"))


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def write(path: Path, machine: dict[str, Any], versions: dict[str, str], entries: dict[str, Any]) -> dict[str, Any]:
    """Write the results, and return the content of the file.

    Entries for other scenarios stay unless a broker has another version now. Entries from another machine are marked
    with it.
    """
    kept: dict[str, Any] = {}
    if path.exists():
        old = json.loads(path.read_text(encoding="utf-8"))
        known = old.get("versions", {})
        if all(versions.get(name, version) == version for name, version in known.items()):
            kept, versions = old["scenarios"], {**known, **versions}
            for entry in kept.values():
                entry["machine"] = entry.get("machine", old["machine"])
                if entry["machine"] == machine:
                    del entry["machine"]
    document = {"machine": machine, "versions": versions, "scenarios": {**kept, **entries}}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return document


def show(console: Console, entries: Iterable[dict[str, Any]]) -> None:
    """Print the report."""
    console.print(table(entries))
