"""Histories as a whole: run one, and make a failing one short."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from tests.simulation.branch_world import WEIGHTS as BRANCH_WEIGHTS
from tests.simulation.branch_world import BranchWorld
from tests.simulation.ledger import Ledger, Violation
from tests.simulation.steps import WEIGHTS, Step, steps_of
from tests.simulation.world import World


class AnyWorld(Protocol):
    """What a history happens in."""

    ledger: Ledger
    trace: list[str]

    def read_along(self) -> None: ...

    def run(self, steps: Iterable[Step]) -> None: ...


MakeWorld = Callable[[int], AnyWorld]


WEIGHTS_OF: Final[dict[MakeWorld, dict[str, int]]] = {BranchWorld: BRANCH_WEIGHTS}
"""What happens how often, where it is not as in `World`."""


@dataclass
class Failure:
    """A history that ended with an error."""

    seed: int
    steps: list[Step]
    trace: list[str]
    error: BaseException
    make_world: MakeWorld

    @property
    def is_violation(self) -> bool:
        """The oracle has found something; else the broker fell over."""
        return isinstance(self.error, Violation)


def attempt(
    seed: int, steps: Sequence[Step], make_world: MakeWorld = World, *, messages: bool = False
) -> Failure | dict[str, int]:
    """The failure, or how often what was seen. With `messages`, its trace has them all."""
    trace: list[str] = []
    try:
        world = make_world(seed)
        trace = world.trace
        if messages:
            world.read_along()
        world.run(steps)
    except Exception as error:  # noqa: BLE001 - whatever the broker raises is a finding
        return Failure(seed, list(steps), trace, error, make_world)
    return world.ledger.events


def history(seed: int, steps: int = 250, make_world: MakeWorld = World) -> Failure | dict[str, int]:
    """The history that belongs to a seed."""
    return attempt(seed, steps_of(seed, steps, WEIGHTS_OF.get(make_world, WEIGHTS)), make_world)


def shrink(failure: Failure, *, tries: int = 2000) -> Failure:
    """The same kind of failure with fewer steps: ever smaller pieces are left out while it still fails."""
    best, make_world = failure, failure.make_world
    size = max(1, len(failure.steps) // 2)
    while tries > 0:
        at = 0
        shorter = False
        while at < len(best.steps) and tries > 0:
            tries -= 1
            rest = best.steps[:at] + best.steps[at + size :]
            found = attempt(best.seed, rest, make_world)
            if isinstance(found, Failure) and type(found.error) is type(failure.error):
                best, shorter = found, True
            else:
                at += size
        if size == 1 and not shorter:
            break
        size = max(1, size // 2)
    return best
