"""The table at the end of a run: figures are aligned with their heads, and meaningless ones are omitted."""

from __future__ import annotations

from escrowmq.perf.pace import SECOND
from escrowmq.perf.report import summary
from escrowmq.perf.runner import Outcome
from escrowmq.perf.totals import Totals
from escrowmq.perf.workload import Workload


def outcome(seconds: float, spread: int = 0) -> Outcome:
    totals = Totals(
        published=5000, consumed=5000, published_at=int(seconds * SECOND), consumed_at=int(seconds * SECOND)
    )
    totals.delivery.record(1_500_000, 5000)
    return Outcome(Workload(spread=spread), "test", "1.0", totals, 5000, seconds)


def test_figures_are_aligned_with_their_heads() -> None:
    assert summary(outcome(2.0)).splitlines() == [
        "test 1.0",
        "           messages  messages/s",
        "published     5,000       2,500",
        "consumed      5,000       2,500",
        "",
        "latency, ms         measured    p50    p95    p99  p99.9    max",
        "publish to deliver     5,000  1.500  1.500  1.500  1.500  1.500",
        "",
        "took 2.00 s; this tool used 0.00 s of CPU",
        "All messages were alike, the best case; the scenarios varied and varied-confirms show the other.",
    ]


def test_a_rate_over_a_very_short_time_is_not_shown() -> None:
    assert summary(outcome(0.049)).splitlines()[2].split() == ["published", "5,000", "–"]
    assert summary(outcome(0.05)).splitlines()[2].split() == ["published", "5,000", "100,000"]


def test_only_a_uniform_load_is_called_the_best_case() -> None:
    assert "best case" not in summary(outcome(2.0, spread=40))
