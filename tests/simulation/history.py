"""Run histories, and shorten failing ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from tests.simulation.amqp010.branch_world import WEIGHTS as SESSION_BRANCH_WEIGHTS
from tests.simulation.amqp010.branch_world import SessionBranchWorld
from tests.simulation.amqp010.world import WEIGHTS as SESSION_WEIGHTS
from tests.simulation.amqp010.world import SessionWorld
from tests.simulation.branch_world import WEIGHTS as BRANCH_WEIGHTS
from tests.simulation.branch_world import BranchWorld
from tests.simulation.group_world import WEIGHTS as GROUP_WEIGHTS
from tests.simulation.group_world import GroupWorld
from tests.simulation.half_world import WEIGHTS as HALF_WEIGHTS
from tests.simulation.half_world import HalfWorld
from tests.simulation.ledger import Ledger, Violation
from tests.simulation.link_world import FAILING, TRANSACTIONS, FailingWorld, LinkWorld, PostingWorld
from tests.simulation.link_world import WEIGHTS as LINK_WEIGHTS
from tests.simulation.rocketmq.world import WEIGHTS as ROCKETMQ_WEIGHTS
from tests.simulation.rocketmq.world import RocketmqWorld
from tests.simulation.steps import WEIGHTS, Step, steps_of
from tests.simulation.world import World


class AnyWorld(Protocol):
    """A simulated world in which a history runs."""

    ledger: Ledger
    trace: list[str]

    def read_along(self) -> None: ...

    def run(self, steps: Iterable[Step]) -> None: ...


MakeWorld = Callable[[int], AnyWorld]


WEIGHTS_OF: Final[dict[MakeWorld, dict[str, int]]] = {
    BranchWorld: BRANCH_WEIGHTS,
    LinkWorld: LINK_WEIGHTS,
    PostingWorld: TRANSACTIONS,
    FailingWorld: FAILING,
    HalfWorld: HALF_WEIGHTS,
    GroupWorld: GROUP_WEIGHTS,
    RocketmqWorld: ROCKETMQ_WEIGHTS,
    SessionWorld: SESSION_WEIGHTS,
    SessionBranchWorld: SESSION_BRANCH_WEIGHTS,
}
"""The frequencies of steps in worlds other than `World`."""


@dataclass
class Failure:
    """A history that ended with an error, and its trace."""

    seed: int
    steps: list[Step]
    trace: list[str]
    error: BaseException
    make_world: MakeWorld

    @property
    def is_violation(self) -> bool:
        """Whether the oracle found a violation; otherwise the broker raised an error."""
        return isinstance(self.error, Violation)


def attempt(
    seed: int, steps: Sequence[Step], make_world: MakeWorld = World, *, messages: bool = False
) -> Failure | dict[str, int]:
    """Run a history. Returns the failure, or counts of events. With `messages`, the trace contains all messages."""
    trace: list[str] = []
    try:
        world = make_world(seed)
        trace = world.trace
        if messages:
            world.read_along()
        world.run(steps)
    except Exception as error:  # noqa: BLE001 - any exception of the broker is a finding
        return Failure(seed, list(steps), trace, error, make_world)
    return world.ledger.events


def history(seed: int, steps: int = 250, make_world: MakeWorld = World) -> Failure | dict[str, int]:
    """Run the history of a seed. Returns the failure, or counts of events."""
    return attempt(seed, steps_of(seed, steps, WEIGHTS_OF.get(make_world, WEIGHTS)), make_world)


def shrink(failure: Failure, *, tries: int = 2000) -> Failure:
    """Find a shorter history with the same kind of failure, by omitting smaller and smaller pieces."""
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
