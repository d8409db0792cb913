"""All steps of a transfer by the Java program and of its recovery, and the kills at each of them."""

from __future__ import annotations

import random

from tests.xa_kill.steps import VICTIMS, Kill

# The steps of `Worker.java`, in order. Narayana prepares and commits one participant after the other.
WORK = (
    *("transaction", "start broker", "started broker", "start bank", "started bank"),
    *("received", "updated", "sent"),
)
VOTE = (
    *("end broker", "ended broker", "prepare broker", "prepared broker"),
    *("end bank", "ended bank", "prepare bank", "prepared bank", "decide"),
)
OUTCOME = (
    *("decided", "commit broker", "committed broker", "commit bank", "committed bank"),
    *("forget", "forgotten", "done"),
)
TRANSFER = (*WORK, *VOTE, *OUTCOME)

# The participant has executed the call, and dies before it answers.
UNANSWERED_COMMITS = {"broker": "unanswered commit broker", "postgresql": "unanswered commit bank"}
UNANSWERED = {"broker": "unanswered prepare broker", "postgresql": "unanswered prepare bank"}
DECIDED = frozenset({*OUTCOME, *UNANSWERED_COMMITS.values()})
"""The steps after the decision."""

# The steps of recovery after a kill at the key. The log is cleared only of what was decided.
COMPLETION = ("complete broker", "completed broker", "complete bank", "completed bank")
RECOVERY = {
    "decide": ("ask broker", "asked broker", "ask bank", "asked bank", *COMPLETION),
    "decided": (*COMPLETION, "clear", "cleared"),
}

EVERY = (
    *(Kill(victim, step, index % 2, None) for victim in VICTIMS for index, step in enumerate(TRANSFER)),
    *(Kill(victim, step, 0, None) for steps in (UNANSWERED, UNANSWERED_COMMITS) for victim, step in steps.items()),
    *(Kill("session", step, 0, None) for step in ("prepare bank", "commit bank")),
    *(Kill("application", first, 0, step) for first, steps in RECOVERY.items() for step in steps),
)
"""Every victim at every step. The session is that of the program in PostgreSQL, which an administrator ends."""

FEW = (
    Kill("application", "decide", 0, None),
    Kill("postgresql", "unanswered prepare bank", 0, None),
    Kill("application", "decided", 1, "completed broker"),
    Kill("broker", "sent", 1, None),
    Kill("broker", "unanswered commit broker", 0, None),
    Kill("session", "commit bank", 0, None),
    Kill("application", "committed broker", 0, None),
    Kill("postgresql", "prepared bank", 1, None),
    Kill("broker", "prepared broker", 0, None),
)
"""The most critical steps, with each victim."""


def schedule(rounds: int, seed: int) -> list[Kill]:
    """Return the kill for each round: every victim at every step before any is repeated."""
    rng = random.Random(seed)
    kills: list[Kill] = []
    while len(kills) < rounds:
        kills += rng.sample(EVERY, len(EVERY))
    return kills[:rounds]
