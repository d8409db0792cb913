"""The steps of a simulated history as data. They come from a seed or from Hypothesis, and can be left out to shrink."""

from __future__ import annotations

import random
from typing import Final, NamedTuple

WEIGHTS: Final[dict[str, int]] = {
    # clients
    "publish": 70,
    "settle": 80,
    "commit": 26,
    "rollback": 6,
    "consume": 24,
    "cancel": 3,
    "get": 12,
    "recover": 4,
    "purge": 2,
    "delete": 2,
    "declare": 4,
    "count": 8,
    "exclusive": 3,
    "close channel": 3,
    "close connection": 2,
    "break": 3,
    # network, turns, time
    "arrive": 30,
    "answer": 30,
    "turn": 30,
    "pass time": 8,
    # the disk
    "take": 16,
    "write": 16,
    "report": 16,
    "pump": 16,
    "maintain": 60,
    "snapshot": 2,
    "write snapshot": 2,
    "housekeep": 2,
    "files": 2,
    "relocate": 2,
    "tidy": 2,
    # trouble
    "crash": 1,
    "kill": 1,
    "restart": 1,
    "power fails in": 1,
    "sync fails in": 1,
    "append refused in": 1,
    "disk fills": 1,
    "set clock": 3,
    "reads fail": 4,
    "reads succeed": 6,
    "compare": 4,
}


class Step(NamedTuple):
    """One step. All numbers are valid, because they are taken modulo the number of choices."""

    kind: str
    who: int
    what: int
    how: int

    def __str__(self) -> str:
        return f"{self.kind} {self.who} {self.what} {self.how}"


def steps_of(seed: int, number: int, weights: dict[str, int] = WEIGHTS) -> list[Step]:
    """Return the steps of a seed's history."""
    rng = random.Random(f"steps {seed}")
    kinds = rng.choices(list(weights), list(weights.values()), k=number)
    return [Step(kind, rng.randrange(256), rng.randrange(256), rng.randrange(256)) for kind in kinds]
