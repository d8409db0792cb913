"""Every step between the first message and the last commit, and which of them to be killed at."""

from __future__ import annotations

import random
from typing import NamedTuple

# What the application says before it goes on, in the order in which it comes to it. The two participants vote, and
# commit, side by side.
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

# What recovery says; some only if there is anything to commit, or to roll back.
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
"""So many rounds come to every victim at every step."""


class Kill(NamedTuple):
    """Whom to kill at which step; `manager` is the step of the recovery that is killed after that, if any."""

    victim: str
    step: str
    order: int
    """In which transfer of the round: 0 on new connections, 1 on those that are used again."""
    manager: str | None

    def __str__(self) -> str:
        text = f"{self.victim} at {self.step!r} of order {self.order}"
        return f"{text}, transaction manager at {self.manager!r}" if self.manager else text


def schedule(rounds: int, seed: int) -> list[Kill]:
    """Who is to be killed where in each round: every victim at every step before any comes again.

    While recovery is what is to be killed, the application was killed after the vote, so that there is something to do.
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
