"""What a query's progress says about its sources of EscrowMQ, in words and as metrics for Prometheus.

Spark describes a source in Python only by the class of its own wrapper. The offsets tell queue, group and lag.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

_METRICS: Final = {
    "up": ("escrowmq_spark_up", "1 while the query runs, 0 after it has failed."),
    "lag": ("escrowmq_spark_lag_messages", "Messages that the query has not read yet."),
    "held": ("escrowmq_spark_held_messages", "Messages that are reserved for the query's group and not settled."),
    "undecided": (
        "escrowmq_spark_undecided_branches",
        "Prepared branches of all Spark queries that await their decision.",
    ),
    "epoch": ("escrowmq_spark_epoch", "The number of the last micro-batch."),
    "rows": ("escrowmq_spark_rows", "Rows in the last micro-batch."),
}


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """One source of a query, after a micro-batch.

    Args:
        group: the group; empty for streams.
        queues: the number of the next message of each queue.
        lag: how many messages the source has not read; None if this Spark does not tell.
        rows: the rows of the micro-batch.
    """

    group: str
    queues: dict[str, int]
    streams: frozenset[str]
    lag: int | None
    rows: int

    @property
    def name(self) -> str:
        """What an operator would call the source."""
        kinds = []
        for kind, names in (
            ("queue", sorted(self.queues.keys() - self.streams)),
            ("stream", sorted(self.queues.keys() & self.streams)),
        ):
            if names:
                kinds.append(f"{kind}{'s' if len(names) > 1 else ''} {', '.join(names)}")
        group = f", group {self.group}" if self.group else ""
        return f"escrowmq {' and '.join(kinds) or 'without queues'}{group}"


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """A query after a micro-batch.

    `held` has a number for each source. `undecided` is the number of prepared branches of all Spark queries, since a
    branch has the name of its application, which a query may have chosen. Both come from the broker, and are None if it
    was not asked, or did not answer. A query that has failed is not `up`.
    """

    query: str
    name: str
    epoch: int
    sources: tuple[SourceProgress, ...]
    held: tuple[int, ...] | None = None
    undecided: int | None = None
    up: bool = True
    fault: str = field(default="", compare=False)

    def __str__(self) -> str:
        """Return one line for a log."""
        parts = []
        for i, source in enumerate(self.sources):
            lag = "unknown" if source.lag is None else f"{source.lag:,}"
            held = "" if self.held is None else f", held {self.held[i]:,}"
            parts.append(f"{source.name}: {source.rows:,} rows, lag {lag}{held}")
        undecided = "" if self.undecided is None else f"; undecided branches {self.undecided}"
        fault = f"; {self.fault}" if self.fault else ""
        return f"query {self.name}, epoch {self.epoch}: {'; '.join(parts)}{undecided}{fault}"


def parse(progress: Any) -> QueryProgress | None:
    """Read Spark's StreamingQueryProgress. Returns None if the query has no source of EscrowMQ."""
    sources = tuple(found for source in progress.sources if (found := _source(source)) is not None)
    if not sources:
        return None
    return QueryProgress(str(progress.id), progress.name or str(progress.id), progress.batchId, sources)


def _source(source: Any) -> SourceProgress | None:
    end, latest = _offset(source.endOffset), _offset(source.latestOffset)
    if end is None:
        return None
    lag = None
    if latest is not None:
        lag = sum(max(number - end["queues"].get(queue, number), 0) for queue, number in latest["queues"].items())
    return SourceProgress(end["group"], end["queues"], frozenset(end.get("streams", ())), lag, source.numInputRows)


def _offset(text: str | None) -> dict[str, Any] | None:
    try:
        found = json.loads(text or "")
    except ValueError:
        return None
    return found if isinstance(found, dict) and {"group", "queues"} <= found.keys() else None


def exposition(queries: Iterable[QueryProgress]) -> str:
    """Return the last progress of queries in Prometheus's text format."""
    samples: dict[str, list[str]] = {name: [] for name in _METRICS}
    for query in queries:
        whole = f'query="{_label(query.name)}"'
        samples["up"].append(f"{{{whole}}} {query.up:d}")
        samples["epoch"].append(f"{{{whole}}} {query.epoch}")
        if query.undecided is not None:
            samples["undecided"].append(f"{{{whole}}} {query.undecided}")
        for i, source in enumerate(query.sources):
            part = f'{{{whole},source="{_label(source.name)}"}}'
            samples["rows"].append(f"{part} {source.rows}")
            if source.lag is not None:
                samples["lag"].append(f"{part} {source.lag}")
            if query.held is not None:
                samples["held"].append(f"{part} {query.held[i]}")
    lines = []
    for name, (metric, text) in _METRICS.items():
        if samples[name]:
            lines += [f"# HELP {metric} {text}", f"# TYPE {metric} gauge"]
            lines += [metric + sample for sample in samples[name]]
    return "".join(f"{line}\n" for line in lines)


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
