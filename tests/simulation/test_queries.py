"""A simulated query moves messages exactly once, whatever dies and when (PIPE-1, PIPE-2, PIPE-3)."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.query import World

pytestmark = [pytest.mark.rule("PIPE-1"), pytest.mark.rule("PIPE-2"), pytest.mark.rule("PIPE-3")]


def history(seed: int, trouble: float) -> Counter[str]:
    world = World(seed, trouble=trouble)
    world.run(40)
    world.check()
    return world.events


def test_a_query_moves_messages_exactly_once_without_faults() -> None:
    assert history(0, 0.0)["power"] == 0


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_a_query_moves_messages_exactly_once_despite_faults(first: int) -> None:
    for seed in range(first, first + 10):
        history(seed, 0.02)


def covered(histories: int) -> bool:
    """Whether this number of histories with much trouble contain all events."""
    events: Counter[str] = Counter()
    for seed in range(1000, 1000 + histories):
        events += history(seed, 0.03)
    return events.keys() >= {"power", "kill", "client", "take", "tidy", "snapshot", "found decided"}


@pytest.mark.slow
def test_histories_of_queries_cover_all_events() -> None:
    assert covered(20)


@pytest.mark.long
@pytest.mark.timeout(0)
def test_many_histories_of_queries_move_messages_exactly_once() -> None:
    assert covered(20_000)
