"""Histories of queues with clients of AMQP 0-10 break no rule that the oracle checks."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.__main__ import report
from tests.simulation.amqp010.planted_sessions import PLANTED
from tests.simulation.amqp010.world import SessionWorld
from tests.simulation.history import Failure, history, shrink
from tests.simulation.planting import is_found

HISTORIES = 100
RARE = {"half a command is kept": 68}
"""The first histories that find bugs which few histories find. They are tried first, which saves many seconds."""

NEVER_MISSING = {
    *("accepted", "commands repeated", "sessions kept", "sessions resumed", "sessions taken over"),
    "ack",
    "commits",
    "commits over several queues",
    "confirms",
    "counts checked",
    "crash",
    "dead-lettered by the broker",
    "delivered",
    "kill",
    "redelivered",
    "reject",
    "requeue",
    "restarts",
    "returned",
    "rollbacks",
    "transactions dropped by a close",
    "undone by a crash",
}


@pytest.mark.slow
@pytest.mark.rule("TX-2", "TX-3", "TX-5", "TX-10", "ORD-1", "ORD-2", "DUR-1", "DUR-2", "DUR-3")
@pytest.mark.parametrize("first", range(0, 60, 20))
def test_histories_by_seed_break_no_rule(first: int) -> None:
    counts: Counter[str] = Counter()
    for seed in range(first, first + 20):
        found = history(seed, 200, SessionWorld)
        if isinstance(found, Failure):
            pytest.fail(report(shrink(found)))
        counts.update(found)
    assert {event for event in NEVER_MISSING if not counts[event]} == set()


def test_a_history_is_the_same_each_time() -> None:
    assert history(3, 60, SessionWorld) == history(3, 60, SessionWorld)


@pytest.mark.slow
@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bugs_are_found(bug: str) -> None:
    assert is_found(PLANTED[bug], HISTORIES, RARE.get(bug, 0), SessionWorld), f"not found in {HISTORIES} histories"
