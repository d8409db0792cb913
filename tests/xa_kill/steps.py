"""All steps between the first message and the last commit, and which of them to kill at."""

from __future__ import annotations

import random
from typing import NamedTuple

# The steps that the application prints, in order. The two participants vote, and commit, concurrently.
WORK = (
    "transaction",
    "begin broker",
    "begun broker",
    "begin bank",
    "begun bank",
    "get",
    "got",
    "updated",
    "published",
    "acknowledged",
)
VOTE = ("prepare broker", "prepared broker", "prepare bank", "prepared bank", "decide")
OUTCOME = ("decided", "commit broker", "committed broker", "commit bank", "committed bank", "done")
TRANSFER = (*WORK, *VOTE, *OUTCOME)

# The steps that recovery prints; some only if there is anything to commit or to roll back.
RECOVERY = (
    "open log",
    "ask broker",
    "asked broker",
    "ask bank",
    "asked bank",
    "complete broker",
    "completed broker",
    "complete bank",
    "completed bank",
    "recovered",
)
VICTIMS = ("application", "broker", "postgresql")
EVERY = len(VICTIMS) * len(TRANSFER) + len(RECOVERY)
"""The number of rounds that cover every victim at every step."""


class Kill(NamedTuple):
    """The victim and the step. `manager` is the step of the recovery that is killed after that, if any."""

    victim: str
    step: str
    order: int
    """The transfer of the round: 0 uses new connections, 1 reuses them."""
    manager: str | None

    def __str__(self) -> str:
        text = f"{self.victim} at {self.step!r} of order {self.order}"
        return f"{text}, transaction manager at {self.manager!r}" if self.manager else text


def schedule(rounds: int, seed: int) -> list[Kill]:
    """Return the kill for each round: every victim at every step before any is repeated.

    To kill recovery, the application is killed after the vote first, so that recovery has something to do.
    """
    rng = random.Random(seed)
    kills: list[Kill] = []
    while len(kills) < rounds:
        every = [Kill(victim, step, rng.randrange(2), None) for victim in VICTIMS for step in TRANSFER]
        some = [Kill("application", rng.choice(["decide", "decided"]), rng.randrange(2), step) for step in RECOVERY]
        every += some
        rng.shuffle(every)
        kills += every
    return kills[:rounds]
