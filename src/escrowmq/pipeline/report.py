"""The page that a person reads in a minute: `report.html`, in one file, with its plots in it."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from escrowmq.pipeline.audit import Audit, Verdict

SHOWN: Final = 100
QUEUES: Final = 12
_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1c2430; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: .3rem } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem }
.verdict { padding: .8rem 1.2rem; border-radius: .5rem; font-size: 1.3rem; font-weight: 600; color: #fff }
.clean { background: #1a7f4b } .broken { background: #b3261e }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .9rem }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid #dde3ea; vertical-align: top }
th { background: #f3f6f9 } td.n, th.n { text-align: right } img { max-width: 100% } p.note { color: #5a6675 }
"""


def write_report(audit: Audit, verdict: Verdict) -> Path:
    """Write it beside the tables; its path."""
    store, spark = audit.store, audit.spark
    flow = _rows(store.read(spark, "gold.throughput", run=store.run), "minute")
    late = _rows(store.read(spark, "gold.latency", run=store.run), "hour")
    wrong = _rows(store.read(spark, "gold.violations", run=store.run), "rule", most=SHOWN)
    doubt = _rows(store.read(spark, "gold.undecided", run=store.run), "prepared_at", most=SHOWN)
    plan = audit.plan
    count = verdict.violations
    headline = "CLEAN: no rule was broken" if verdict.clean else f"{count} violation{'s' * (count > 1)}"
    facts = [
        ("Journal", audit.journal),
        (
            "Read in this run",
            f"LSN {plan.begin:#x} to {plan.end:#x}, {plan.bytes / 1e6:,.1f} MB, {verdict.records:,} records",
        ),
        ("Messages in this run", f"{verdict.messages:,} (settled, or still waiting)"),
        ("Branches in doubt", f"{verdict.undecided:,}"),
        ("History", "whole" if plan.start == 0 else f"gaps below LSN {plan.start:#x}: deleted by the broker as dead"),
        ("Run", f"{verdict.run}, {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"),
    ]
    parts = [
        f"<h1>Audit of {escape(Path(audit.journal).name)}</h1>",
        f'<p class="verdict {"clean" if verdict.clean else "broken"}">{headline}</p>',
        _table(("", ""), facts),
    ]
    if wrong:
        parts.append("<h2>What was broken</h2>")
        parts.append(_table(("Rule", "What", "Where", "LSNs", "Explanation"), map(_violation, wrong)))
        if count > len(wrong):
            parts.append(f'<p class="note">The first {len(wrong)} of {count}; all are in gold/violations.</p>')
    if doubt:
        parts.append("<h2>In doubt</h2>")
        rows = [(row["branch"], row["xid"] or "", row["owner"] or "", _time(row["prepared_at"])) for row in doubt]
        parts.append(_table(("Branch", "xid", "Owner", "Prepared"), rows))
    if flow:
        parts.append("<h2>Messages by minute</h2>" + _image(_flow(flow)))
        parts.append("<h2>Queues</h2>" + _queues(flow, late))
    if late:
        parts.append("<h2>From publish to settlement</h2>" + _image(_latency(late)))
    page = f"<!doctype html><html lang=en><meta charset=utf-8><title>{headline}</title><style>{_STYLE}</style>"
    path = store.folder / "report.html"
    fresh = path.with_suffix(f".{os.getpid()}")
    fresh.write_text(page + "\n".join(parts) + "</html>\n", encoding="utf-8")
    fresh.replace(path)
    return path


def _rows(frame: Any, order: str, most: int | None = None) -> list[dict[str, Any]]:
    if frame is None:
        return []
    frame = frame.orderBy(order)
    return [row.asDict() for row in (frame if most is None else frame.limit(most)).collect()]


def _violation(row: dict[str, Any]) -> tuple[object, ...]:
    where = f"{row['queue']} {row['position']}" if row["queue"] else f"branch {row['branch']}" if row["branch"] else ""
    return row["rule"], row["name"], where, " ".join(f"{lsn:#x}" for lsn in row["lsns"]), row["explanation"]


def _queues(flow: list[dict[str, Any]], late: list[dict[str, Any]]) -> str:
    totals: dict[tuple[str, str], list[float]] = {}
    for row in flow:
        sums = totals.setdefault((row["vhost"], row["queue"]), [0, 0, 0])
        for i, name in enumerate(("published", "settled", "published_bytes")):
            sums[i] += row[name] or 0
    medians: dict[tuple[str, str], list[tuple[int, float, float]]] = {}
    for row in late:
        if row["stage"] == "published to settled":
            medians.setdefault((row["vhost"], row["queue"]), []).append((row["messages"], row["p50_ms"], row["p99_ms"]))
    rows = []
    for (vhost, queue), sums in sorted(totals.items(), key=lambda item: -item[1][0]):
        found = max(medians.get((vhost, queue), [(0, float("nan"), float("nan"))]))
        times = ("", "") if found[0] == 0 else (f"{found[1]:,.1f}", f"{found[2]:,.1f}")
        rows.append((f"{vhost} {queue}", f"{sums[0]:,.0f}", f"{sums[1]:,.0f}", f"{sums[2] / 1e6:,.1f}", *times))
    note = f'<p class="note">The {SHOWN} busiest of {len(rows)}.</p>' if len(rows) > SHOWN else ""
    heads = ("Queue", "Published", "Settled", "MB", "Median ms", "99 % ms")
    return _table(heads, rows[:SHOWN], numbers=(1, 2, 3, 4, 5)) + note


def _flow(rows: list[dict[str, Any]]) -> Any:
    from matplotlib.figure import Figure

    sums: dict[datetime, list[int]] = {}
    for row in rows:
        if row["minute"] is not None:
            total = sums.setdefault(row["minute"], [0, 0])
            total[0] += row["published"] or 0
            total[1] += row["settled"] or 0
    minutes = sorted(sums)
    figure = Figure(figsize=(9, 2.6), layout="constrained")
    axes = figure.subplots()
    marker = "o" if len(minutes) < 3 else ""
    for i, (name, colour) in enumerate((("published", "#2f6fb0"), ("settled", "#d9822b"))):
        axes.plot(minutes, [sums[minute][i] for minute in minutes], label=name, color=colour, marker=marker)  # type: ignore[arg-type]
    axes.set_ylabel("messages per minute")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.autofmt_xdate()
    return figure


def _latency(rows: list[dict[str, Any]]) -> Any:
    from matplotlib.figure import Figure

    best: dict[str, tuple[int, float, float]] = {}
    for row in rows:
        if row["stage"] == "published to settled":
            found = (row["messages"], row["p50_ms"], row["p99_ms"])
            best[row["queue"]] = max(best.get(row["queue"], found), found)
    queues = sorted(best, key=lambda queue: -best[queue][0])[:QUEUES]
    figure = Figure(figsize=(9, 1 + 0.35 * len(queues)), layout="constrained")
    axes = figure.subplots()
    places = range(len(queues))
    axes.barh(places, [best[queue][2] for queue in queues], color="#c8d7e6", label="99 %")
    axes.barh(places, [best[queue][1] for queue in queues], color="#2f6fb0", label="median", height=0.4)
    axes.set_yticks(list(places), queues)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("milliseconds, in the busiest hour")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _image(figure: Any) -> str:
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=110)
    return f'<img alt="" src="data:image/png;base64,{base64.b64encode(data.getvalue()).decode()}">'


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]], numbers: Sequence[int] = ()) -> str:
    def cells(row: Sequence[object], tag: str) -> str:
        return "".join(
            f"<{tag}{' class=n' if i in numbers else ''}>{escape(str(cell))}</{tag}>" for i, cell in enumerate(row)
        )

    head = f"<tr>{cells(heads, 'th')}</tr>" if any(heads) else ""
    lines = [f"<tr>{cells(row, 'td')}</tr>" for row in rows]
    return f"<table>{head}{''.join(lines)}</table>"


def _time(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S}"
