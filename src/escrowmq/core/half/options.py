"""The settings of half messages: when they are checked, and their limits (HALF-4, FAIR-3)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

MOST_CHECKS: Final = 65_535
ID_LENGTH: Final = 255
"""Maximum number of characters of a message id, a producer group, and a producer's label."""


class CheckOptions(NamedTuple):
    """When half messages without a decision are checked. Times are in milliseconds, and at least 1."""

    timeout_ms: int = 6_000
    """Time from the arrival to the first check."""
    interval_ms: int = 30_000
    """Time from one check to the next, and from the last one to the parking."""
    checks: int = 15
    """Number of checks, from 1 to `MOST_CHECKS`."""


@dataclass(slots=True)
class HalfOptions:
    """The settings of the broker. `topics` holds those that differ for a topic, by (virtual host, name)."""

    check: CheckOptions = field(default_factory=CheckOptions)
    topics: dict[tuple[str, str], CheckOptions] = field(default_factory=dict)
    outcome_kept_ms: int = 15 * 60 * 1000
    """Time for which the outcome of a decided half message stays known."""
    outcomes: int = 500_000
    """Number of outcomes that stay known in each virtual host; the oldest are forgotten first."""
    per_user: int = 2_000_000
    """Number of undecided half messages of a user in each virtual host."""

    def of(self, vhost: str, topic: str) -> CheckOptions:
        """Return the options for a topic."""
        return self.topics.get((vhost, topic), self.check) if self.topics else self.check
