"""The output of a run: the JSON document, the final table, the live display."""

from __future__ import annotations

from dataclasses import asdict
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from escrowmq import __version__
from escrowmq.perf.histogram import Histogram
from escrowmq.perf.loop import Sample
from escrowmq.perf.pace import SECOND
from escrowmq.perf.runner import Outcome
from escrowmq.perf.totals import Totals
from escrowmq.text import columns, printable

_PERCENTILES = ("p50", "p95", "p99", "p99.9", "max")
_SHORTEST = SECOND // 20
"""The shortest duration (ns) for which a rate is shown."""


def document(outcome: Outcome, scenario: str | None) -> dict[str, Any]:
    """Return the result as `--json` prints it; `docs/perf.md` describes the fields."""
    totals = outcome.totals
    messages = max(totals.published, totals.consumed)
    return {
        "tool": f"escrowmq perf {__version__}",
        "broker": {"product": outcome.product, "version": outcome.version},
        "scenario": scenario,
        "workload": asdict(outcome.workload),
        "published": totals.published,
        "confirmed": totals.confirmed,
        "rejected": totals.rejected,
        "consumed": totals.consumed,
        "expected": outcome.expected,
        "seconds": round(outcome.seconds, 6),
        "rates": {
            "publish": _rate(totals.published, totals.published_at - outcome.started),
            "confirm": _rate(totals.confirmed, totals.confirmed_at - outcome.started),
            "deliver": _rate(totals.consumed, totals.consumed_at - outcome.started),
        },
        "latency_us": _summary(totals.delivery),
        "answer_us": _summary(totals.answer),
        "blocked_seconds": round(outcome.blocked_seconds, 3),
        "interrupted": outcome.interrupted,
        "cpu_seconds": round(outcome.cpu_seconds, 3),
        "cpu_seconds_per_million": round(outcome.cpu_seconds * 1e6 / messages, 3) if messages else None,
        "series": [[round(s.seconds, 4), s.published, s.confirmed, s.consumed] for s in outcome.series],
    }


def _rate(number: int, duration: int) -> float:
    return round(number * SECOND / duration, 1) if number and duration > 0 else 0.0


def _summary(histogram: Histogram) -> dict[str, float] | None:
    return histogram.summary() if histogram.count else None


def summary(outcome: Outcome) -> str:
    """Return the result as text: counts and rates, then latency, then times."""
    totals = outcome.totals
    counts = (
        ("published", totals.published, totals.published_at),
        ("confirmed", totals.confirmed, totals.confirmed_at),
        ("consumed", totals.consumed, totals.consumed_at),
    )
    rows = [(name, f"{number:,}", _shown_rate(number, at - outcome.started)) for name, number, at in counts if number]
    lines = [
        printable(f"{outcome.product or 'broker'} {outcome.version}".strip()),
        *columns([("", "messages", "messages/s"), *rows], (False, True, True)),
    ]
    latencies = [
        (name, f"{histogram.count:,}", *(f"{histogram.summary()[key] / 1000:.3f}" for key in _PERCENTILES))
        for name, histogram in (
            ("publish to deliver", totals.delivery),
            ("publish or commit to answer", totals.answer),
        )
        if histogram.count
    ]
    if latencies:
        right = (False, *[True] * (1 + len(_PERCENTILES)))
        lines += ["", *columns([("latency, ms", "measured", *_PERCENTILES), *latencies], right)]
    lines += ["", f"took {outcome.seconds:.2f} s; this tool used {outcome.cpu_seconds:.2f} s of CPU"]
    if outcome.workload.variety.uniform:
        lines.append("All messages were alike, the best case; the scenarios varied and varied-confirms show the other.")
    return "\n".join(lines)


def _shown_rate(number: int, duration: int) -> str:
    """Return the rate, or nothing if the duration is too short for a meaningful one."""
    return f"{_rate(number, duration):,.0f}" if duration >= _SHORTEST else "–"


class LiveDisplay:
    """Displays the current rates, redrawn in place; silent if `enabled` is false."""

    def __init__(self, console: Console, enabled: bool) -> None:
        self._live = Live(console=console, transient=True, auto_refresh=False) if enabled else None
        self._last = Sample(0.0, 0, 0, 0)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, sample: Sample, blocked: str | None, totals: Totals) -> None:
        """Draw the rates since the last call."""
        last, self._last = self._last, sample
        elapsed = sample.seconds - last.seconds
        if self._live is None or elapsed <= 0:
            return
        table = Table(box=None, title=f"{sample.seconds:.1f} s", title_justify="left")
        for heading in ("", "messages", "messages/s"):
            table.add_column(heading, justify="left" if not heading else "right")
        for name, number, before in (
            ("published", sample.published, last.published),
            ("confirmed", sample.confirmed, last.confirmed),
            ("consumed", sample.consumed, last.consumed),
        ):
            table.add_row(name, f"{number:,}", f"{(number - before) / elapsed:,.0f}")
        notes = []
        if totals.delivery.count:
            percentiles = " / ".join(f"{totals.delivery.percentile(p) / 1e6:.2f}" for p in (50, 99))
            notes.append(f"latency p50 / p99: {percentiles} ms")
        if blocked is not None:
            notes.append(f"blocked: {printable(blocked)}")
        table.caption, table.caption_justify = Text("\n".join(notes)), "left"
        self._live.update(table, refresh=True)
