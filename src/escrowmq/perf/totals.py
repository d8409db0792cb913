"""The counts of all peers of a run so far."""

from __future__ import annotations

from dataclasses import dataclass, field

from escrowmq.perf.histogram import Histogram


@dataclass(slots=True)
class Totals:
    """Counts of messages, and the time (monotonic ns) of the last message of each kind."""

    published: int = 0
    confirmed: int = 0
    consumed: int = 0
    rejected: int = 0
    returned: int = 0
    published_at: int = 0
    confirmed_at: int = 0
    consumed_at: int = 0
    delivery: Histogram = field(default_factory=Histogram)
    """From publish to delivery, ns."""
    answer: Histogram = field(default_factory=Histogram)
    """From publish to confirm, or from commit to commit-ok, ns."""
