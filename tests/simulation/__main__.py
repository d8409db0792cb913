"""Run simulated histories by seed: `python -m tests.simulation --seeds 1000 --start 0 --jobs 2`."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from traceback import format_exception
from typing import Final

from tests.simulation.amqp010.branch_world import SessionBranchWorld
from tests.simulation.amqp010.world import SessionWorld
from tests.simulation.branch_world import BranchWorld
from tests.simulation.group_world import GroupWorld
from tests.simulation.half_world import HalfWorld
from tests.simulation.history import Failure, MakeWorld, attempt, history, shrink
from tests.simulation.link_world import FailingWorld, LinkWorld, PostingWorld
from tests.simulation.rocketmq.world import RocketmqWorld
from tests.simulation.world import World


def main(arguments: list[str] | None = None) -> int:
    """Run the histories. Returns the exit status, 0 if the broker broke no promise in any of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="number of histories")
    parser.add_argument("--start", type=int, default=0, help="first seed")
    parser.add_argument("--steps", type=int, default=250, help="length of each history")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes")
    parser.add_argument("--no-shrink", action="store_true", help="show a failing history without shortening it")
    parser.add_argument("--events", action="store_true", help="show counts of events at the end")
    given = parser.parse_args(arguments)
    logging.getLogger("escrowmq.server").setLevel(logging.ERROR)  # the clock is set in most histories
    started = time.monotonic()
    events: Counter[str] = Counter()
    done = 0
    seeds = range(given.start, given.start + given.seeds)
    one: Callable[[int], Failure | dict[str, int]] = partial(both, steps=given.steps)
    with ProcessPoolExecutor(given.jobs) as pool:
        for result in pool.map(one, seeds, chunksize=4) if given.jobs > 1 else map(one, seeds):
            if isinstance(result, Failure):
                pool.shutdown(wait=False, cancel_futures=True)
                print(f"\nseed {result.seed} fails after {done} histories")
                print(report(result if given.no_shrink else shrink(result)))
                return 1
            done += 1
            events.update(result)
            if done % 20 == 0 or done == given.seeds:
                rate = done / (time.monotonic() - started)
                print(f"\r{done} of {given.seeds} histories, {rate:.1f}/s", end="", flush=True)
    print()
    if given.events:
        for event, number in sorted(events.items()):
            print(f"{number:10} {event}")
    return 0


WORLDS: Final[tuple[MakeWorld, ...]] = (
    World,
    BranchWorld,
    LinkWorld,
    PostingWorld,
    FailingWorld,
    HalfWorld,
    GroupWorld,
    RocketmqWorld,
    SessionWorld,
    SessionBranchWorld,
)


def both(seed: int, steps: int) -> Failure | dict[str, int]:
    """Run a seed's history of clients, then those of transactions, exactly-once links, half messages, groups, and of
    the endpoints of RocketMQ and of AMQP 0-10.
    """
    events: Counter[str] = Counter()
    for world in WORLDS:
        result = history(seed, steps, world)
        if isinstance(result, Failure):
            return result
        events.update(result)
    return events


def report(failure: Failure) -> str:
    """Describe a failure: its steps with every message in both directions, and the error."""
    told = attempt(failure.seed, failure.steps, failure.make_world, messages=True)
    failure = told if isinstance(told, Failure) else failure
    error = "".join(format_exception(failure.error)) if not failure.is_violation else str(failure.error)
    return "\n".join([f"{len(failure.steps)} steps:", *failure.trace, error])


if __name__ == "__main__":
    sys.exit(main())
