"""Many random histories of replication: the protocol, every world of the simulator on it, and every planted bug."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator

from escrowmq.replica.errors import ReplicaError
from tests.simulation.__main__ import report as described
from tests.simulation.history import Failure, history
from tests.simulation.ledger import Violation
from tests.simulation.planting import planted
from tests.simulation.replica import brokers
from tests.simulation.replica import planted as protocol
from tests.simulation.replica.forks import KINDS, ForkingWorld
from tests.simulation.replica.world import World

STEPS = 120
"""Of a history of the protocol alone."""


def run_histories(count: int, seed: int, report: Callable[[str], None]) -> None:
    """Run so many histories of each kind, from `seed` on.

    Fails at the first one that breaks a rule, and if no history finds a planted bug.
    """
    seeds = range(seed, seed + count)
    logging.getLogger("escrowmq").setLevel(logging.CRITICAL)  # clocks are set thousands of times
    for kind in KINDS:
        _protocol(kind, seeds, report)
    for name in brokers.WORLDS:
        _world(name, seeds, report)
    for bug in (*protocol.PLANTED, *protocol.PLANTED_WITH_LOSSES):
        check_found(bug, count, _planted_protocol(bug, seeds), report)
    for bug in brokers.PLANTED:
        check_found(f"{bug}, in the whole broker", count, _planted_broker(bug, seeds), report)


def _protocol(kind: str, seeds: range, report: Callable[[str], None]) -> None:
    began, losses, take_overs = time.monotonic(), 0, 0
    for seed in seeds:
        world = KINDS[kind](seed)
        try:
            world.run(STEPS)
        except Exception as error:
            raise AssertionError(f"{kind}, seed {seed}: {error!r}") from error
        losses += world.losses
        take_overs += world.take_overs
    report(_line(kind, seeds, began, take_overs, losses))


def _world(name: str, seeds: range, report: Callable[[str], None]) -> None:
    began, losses, take_overs = time.monotonic(), 0, 0
    with brokers.clusters() as made:
        for seed in seeds:
            result = history(seed, brokers.STEPS, brokers.WORLDS[name])
            assert not isinstance(result, Failure), f"{name}, seed {seed}: {described(result)}"
            losses += sum(cluster.losses for cluster in made)
            take_overs += sum(cluster.take_overs for cluster in made)
            made.clear()
    report(_line(name, seeds, began, take_overs, losses))


def _line(what: str, seeds: range, began: float, take_overs: int, losses: int) -> str:
    return (
        f"{what}: {len(seeds)} histories with {take_overs} take-overs and {losses} losses of the log broke no rule "
        f"({time.monotonic() - began:.0f} s)"
    )


def check_found(bug: str, count: int, found: Iterable[int], report: Callable[[str], None]) -> None:
    """Fail unless one of `count` histories has found a planted bug. `found` are their seeds."""
    seeds = list(found)
    assert seeds, f"no history of {count} has found: {bug}"
    report(f"planted: {bug}: found by {len(seeds)} of {count} histories, first by that of seed {seeds[0]}")


def _planted_protocol(bug: str, seeds: range) -> Iterator[int]:
    make = ForkingWorld if bug in protocol.PLANTED_WITH_LOSSES else World
    with planted({**protocol.PLANTED, **protocol.PLANTED_WITH_LOSSES}[bug]):
        for seed in seeds:
            try:
                make(seed).run(STEPS)
            except (Violation, ReplicaError):
                yield seed


def _planted_broker(bug: str, seeds: range) -> Iterator[int]:
    with brokers.clusters() as made, planted(brokers.PLANTED[bug]):
        for seed in seeds:
            for world in brokers.SEARCHING:
                made.clear()
                if isinstance(history(seed, brokers.STEPS, brokers.WORLDS[world]), Failure):
                    yield seed
                    break
