"""The settings of half messages."""

from __future__ import annotations

from pydantic import Field

from escrowmq.config.values import MOST_CHECKS, Duration, Section, TopicChecks


class HalfMessagesSection(Section):
    """When producers are asked about half messages, and how many of them there may be."""

    timeout_seconds: Duration = Field(
        default=6.0, ge=0.001, description="The time from the arrival of a half message to its first check."
    )
    check_interval_seconds: Duration = Field(
        default=30.0,
        ge=0.001,
        description="The time from one check to the next, and from the last one until the message is parked.",
    )
    checks: int = Field(
        default=15, ge=1, le=MOST_CHECKS, description="The number of checks. Only checks that reach a producer count."
    )
    topics: tuple[TopicChecks, ...] = Field(
        default=(),
        strict=False,
        description="Topics with other values: virtual host, topic, timeout, interval and number of checks, as in "
        '`"/ orders 10s 1m 5"`.',
    )
    outcome_kept_seconds: Duration = Field(
        default=900.0,
        ge=1,
        description="The time for which the outcome of a half message stays known. A later decision is refused, also a "
        "repeated one.",
    )
    outcomes: int = Field(
        default=500_000,
        ge=1,
        description="The number of outcomes that stay known in one virtual host; the oldest are forgotten first. Each "
        "takes about 200 bytes of memory.",
    )
    per_user: int = Field(
        default=2_000_000,
        ge=1,
        description="The number of undecided half messages of one user in one virtual host. They also count in "
        "`limits.held_memory_per_user`, with 256 bytes each.",
    )
