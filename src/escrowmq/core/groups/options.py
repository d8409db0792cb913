"""The options of a consumer group, its handles and limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from escrowmq.core.conditions import BrokerError, Condition

MOST_ATTEMPTS: Final = 1000
MOST_BACK_OFFS: Final = 100
BACK_OFF_MS: Final = (
    *(10_000, 30_000, 60_000, 120_000, 180_000, 240_000, 300_000, 360_000),
    *(420_000, 480_000, 540_000, 600_000, 1_200_000, 1_800_000, 3_600_000, 7_200_000),
)


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """The options of a group.

    With `fifo`, messages with the same key (the header `x-partition-key`) are leased one after the other, and all
    messages of a stream without a key likewise. After `max_attempts` leases a message goes to `dead_letter_topic`; if
    that is empty or there is no such topic, it is leased again. `back_off_ms` has the time until a failed message is
    leased again after each attempt, in milliseconds; the last one counts for all further attempts.
    """

    fifo: bool = False
    max_attempts: int = 16
    back_off_ms: tuple[int, ...] = BACK_OFF_MS
    dead_letter_topic: str = ""

    def back_off(self, attempts: int) -> int:
        """Return the time until the next attempt of a message that has failed `attempts` times."""
        return self.back_off_ms[min(max(attempts, 1), len(self.back_off_ms)) - 1]

    def check(self, group: str) -> None:
        """Raises INVALID_ARGUMENT for values that are out of range."""
        wrong = None
        if not 1 <= self.max_attempts <= MOST_ATTEMPTS:
            wrong = f"max_attempts is {self.max_attempts}, and must be from 1 to {MOST_ATTEMPTS}"
        elif not 1 <= len(self.back_off_ms) <= MOST_BACK_OFFS or min(self.back_off_ms) < 0:
            wrong = f"back_off_ms must have 1 to {MOST_BACK_OFFS} times of at least 0 ms"
        if wrong is not None:
            raise BrokerError(Condition.INVALID_ARGUMENT, f"invalid options of consumer group '{group}': {wrong}")

    def fields(self) -> dict[str, Any]:
        """Return the options as fields of a record."""
        return {
            "fifo": self.fifo,
            "max_attempts": self.max_attempts,
            "back_off_ms": list(self.back_off_ms),
            "dead_letter_topic": self.dead_letter_topic,
        }


def options_of(fields: Mapping[str, Any]) -> GroupOptions:
    """Return the options in a record."""
    return GroupOptions(
        fields["fifo"], fields["max_attempts"], tuple(fields["back_off_ms"]), fields["dead_letter_topic"]
    )


class Handle(NamedTuple):
    """Names a lease: the number of the group, the id of the stream, the position, and the generation, which no other
    lease has. All of them fit into 64 bits; the first two into 32.
    """

    group: int
    stream: int
    position: int
    generation: int


@dataclass(slots=True)
class GroupLimits:
    """The limits of consumer groups."""

    groups: int = 10_000
    """For each virtual host."""
    outstanding: int = 100_000
    """Messages of one group in one stream that are leased, wait for another attempt, or wait behind such messages."""
    lease_ms: int = 7 * 24 * 3600 * 1000
    """A longer lease is reduced to it."""
