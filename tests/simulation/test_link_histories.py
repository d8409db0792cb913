"""Histories of exactly-once links process every message once, and planted bugs are found."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulation.__main__ import report
from tests.simulation.faulty_world import TROUBLES
from tests.simulation.history import Failure, history, shrink
from tests.simulation.link_world import TRANSACTIONS, WEIGHTS, FailingWorld, LinkWorld, PostingWorld
from tests.simulation.planted_links import OF_FAILING_DISKS, OF_TRANSACTIONS, PLANTED
from tests.simulation.planting import is_found
from tests.simulation.steps import Step

HISTORIES = 200
RARE = {
    "transfer before its acquisition is synced": 152,
    "delayed message sent on by two records": 91,
    "delayed message sent on too early": 143,
    "posts not named in the map": 121,
    "what cannot be read is settled": 88,
}
"""The first histories that find bugs which few histories find. They are tried first, which saves many seconds."""
NUMBER = st.integers(0, 255)
STEPS = st.lists(st.builds(Step, st.sampled_from(sorted(WEIGHTS | TRANSACTIONS)), NUMBER, NUMBER, NUMBER), max_size=80)

WORLDS = dict.fromkeys(OF_TRANSACTIONS, PostingWorld) | dict.fromkeys(OF_FAILING_DISKS, FailingWorld)
NEVER_MISSING = {
    *TROUBLES,
    *("claimed", "in doubt", "agreed", "resumed: new", "resumed: known", "stolen", "crashes", "messages"),
    *("accepted before", "sent again", "resumed", "taken by the rival", "delayed", "passed over"),
}


@pytest.mark.rule("SET-3", "SET-8", "SET-9", "SET-10", "SET-12", "DLY-1", "DLY-2", "DLY-4", "DUR-2", "DUR-4", "DUR-5")
def test_histories_by_seed_process_every_message_once() -> None:
    events: Counter[str] = Counter()
    for seed in range(60):
        result = history(seed, make_world=LinkWorld)
        if isinstance(result, Failure):
            pytest.fail(f"seed {seed}: {report(shrink(result, tries=300))}")
        events.update(result)
    assert {event for event, number in events.items() if number} >= NEVER_MISSING


@pytest.mark.rule("SET-3", "SET-7", "SET-9", "SET-12")
def test_histories_with_transactions_process_every_message_once() -> None:
    events: Counter[str] = Counter()
    for seed in range(60):
        result = history(seed, make_world=PostingWorld)
        if isinstance(result, Failure):
            pytest.fail(f"seed {seed}: {report(shrink(result, tries=300))}")
        events.update(result)
    assert {event for event, number in events.items() if number} >= {
        *("posted before", "given up", "resumed within a transaction", "committed", "rolled back"),
    }


@pytest.mark.rule("SET-3", "SET-10", "DUR-2", "DUR-4", "DUR-5")
def test_histories_on_a_failing_disk_process_every_message_once() -> None:
    events: Counter[str] = Counter()
    for seed in range(60):
        result = history(seed, make_world=FailingWorld)
        if isinstance(result, Failure):
            pytest.fail(f"seed {seed}: {report(shrink(result, tries=300))}")
        events.update(result)
    assert {event for event, number in events.items() if number} >= {
        *("refused: the disk cannot be read", "queues unavailable", *TROUBLES),
    }


@pytest.mark.rule("SET-3", "SET-9")
@given(STEPS, st.integers(0, 2**16))
@settings(max_examples=40, deadline=None)
def test_generated_histories_process_every_message_once(steps: list[Step], seed: int) -> None:
    LinkWorld(seed).run(steps)


@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bugs_are_found(bug: str) -> None:
    make_world = WORLDS.get(bug, LinkWorld)
    assert is_found(PLANTED[bug], HISTORIES, RARE.get(bug, 0), make_world), f"not found in {HISTORIES} histories"
