"""Large settlements that are interrupted between their pieces keep every message and its place."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.planted_settlements import PLANTED
from tests.simulation.planting import planted
from tests.simulation.settlement_world import HOW, SettlementWorld

HISTORIES = 100


@pytest.mark.rule("ORD-2", "DUR-1", "DUR-4", "FAIR-1")
def test_a_settlement_in_pieces_keeps_every_message_and_its_place() -> None:
    interrupted: Counter[str] = Counter()
    crashed: Counter[str] = Counter()
    for seed in range(HISTORIES):
        world = SettlementWorld(seed)
        world.run()
        interrupted[world.how] += world.pieces > 3
        crashed[world.how] += world.crashed
    assert min(interrupted[how] for how in HOW) > 3
    assert min(crashed[how] for how in HOW) > 1


@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bugs_of_settlements_in_pieces_are_found(bug: str) -> None:
    with planted(PLANTED[bug]):
        for seed in range(HISTORIES):
            try:
                SettlementWorld(seed).run()
            except Exception:  # noqa: BLE001 - any exception of the broker is a finding
                return
    pytest.fail(f"not found in {HISTORIES} histories")
