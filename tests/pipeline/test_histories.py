"""Audits of simulated histories with kills, power failures and compaction find no violation."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.pipeline.direct import Audited, audited, export, routed
from tests.simulation import branch_world, group_world, half_world, link_world
from tests.simulation.steps import Step, steps_of
from tests.simulation.world import OPTIONS, World

SEEDS = 4
BRANCH_SEEDS = (9, 11, 12, 13, 16, 17)
"""Seeds of histories in which branches get as far as the second phase; in most histories they do not."""
WEIGHTS = {**branch_world.WEIGHTS, "prepare": 60, "force": 30}
"""Branches are prepared, and completed by an operator, more often than in other tests."""
WITH_DELIVERIES = replace(OPTIONS, deliveries=True)
OPTIONS_OF = {
    "all history": replace(WITH_DELIVERIES, keep_dead_bytes=1 << 40),
    "gaps": WITH_DELIVERIES,
    "no deliveries": replace(OPTIONS, keep_dead_bytes=1 << 40),
}


class Watched(World):
    """A world whose journal is audited after each end of the process, before and after recovery."""

    folder: Path
    audits: list[Audited]

    def restart(self, *, power_fails: bool, clean: bool = False, damaged: bool = False) -> None:
        self.audits.append(audited(export(self.storage, self.folder)))
        super().restart(power_fails=power_fails, clean=clean, damaged=damaged)
        self.audits.append(audited(export(self.storage, self.folder)))


@pytest.mark.slow
@pytest.mark.rule("PIPE-5")
@pytest.mark.parametrize("kind", OPTIONS_OF)
def test_histories_of_the_server_are_clean(kind: str, tmp_path: Path) -> None:
    seen: Counter[str | None] = Counter()
    for seed in range(11, 11 + SEEDS):
        world = Watched(seed, options=OPTIONS_OF[kind])
        world.folder, world.audits = tmp_path / str(seed), []
        world.run(steps_of(seed, 200))
        world.audits.append(audited(export(world.storage, world.folder)))
        assert routed(world.folder).wrong == [], f"seed {seed}"
        for found in world.audits:
            assert found.wrong == [], f"seed {seed}"
            seen.update(row["outcome"] for row in found.messages)
            seen["deliveries"] += sum(row["deliveries"] for row in found.messages)
            seen["branches"] += len(found.branches)
    assert seen["accepted"]
    assert seen[None]
    assert seen["branches"]
    assert bool(seen["deliveries"]) == (kind != "no deliveries")


class WatchedBranches(branch_world.BranchWorld):
    """A world of distributed transactions whose journal is audited before and after each start."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.folder = folder
        self.audits: list[Audited] = []
        super().__init__(seed)
        self.machine.before_restart = self._audit

    def began(self) -> None:
        super().began()
        self._audit()

    def _audit(self) -> None:
        self.audits.append(audited(export(self.machine.storage, self.folder)))


@pytest.mark.slow
@pytest.mark.rule("PIPE-5")
@pytest.mark.parametrize("deliveries", [False, True], ids=["no deliveries", "deliveries"])
def test_histories_of_branches_are_clean(deliveries: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branch_world, "OPTIONS", replace(branch_world.OPTIONS, deliveries=deliveries))
    seen: Counter[str | None] = Counter()
    for seed in BRANCH_SEEDS:
        world = WatchedBranches(seed, tmp_path / str(seed))
        world.run(steps_of(seed, 300, WEIGHTS))
        world.audits.append(audited(export(world.machine.storage, world.folder)))
        for found in world.audits:
            assert found.wrong == [], f"seed {seed}"
            seen.update(row["outcome"] for row in found.branches)
    assert seen.keys() >= {"committed", "rolled back", "prepared", "heuristically committed"}


AnyWorld = link_world.LinkWorld | half_world.HalfWorld | group_world.GroupWorld


class Crashing(NamedTuple):
    """A kind of world that crashes, the number and length of its histories, and the weights of its steps."""

    world: type[AnyWorld]
    seeds: int
    steps: int
    weights: dict[str, int]


CRASHING = {
    "exactly-once links": Crashing(link_world.LinkWorld, 8, 400, link_world.WEIGHTS),
    "half messages": Crashing(half_world.HalfWorld, 6, 400, half_world.WEIGHTS),
    "consumer groups": Crashing(group_world.GroupWorld, 6, 250, group_world.WEIGHTS),
}


@pytest.mark.slow
@pytest.mark.rule("PIPE-5")
@pytest.mark.parametrize("kind", CRASHING.values(), ids=CRASHING)
def test_histories_with_crashes_are_clean(kind: Crashing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal is audited after each crash, and at the end."""
    crash, audits = kind.world._crash, []

    def crash_and_audit(world: AnyWorld, step: Step) -> None:
        crash(world, step)
        audits.append(audited(export(world.site.storage, tmp_path)))

    monkeypatch.setattr(kind.world, "_crash", crash_and_audit)
    seen: Counter[str] = Counter()
    for seed in range(kind.seeds):
        world = kind.world(seed)
        world.run(steps_of(seed, kind.steps, kind.weights))
        audits.append(audited(export(world.site.storage, tmp_path)))
        assert routed(tmp_path).wrong == [], f"seed {seed}"
        for found in audits:
            assert found.wrong == [], f"seed {seed}"
            seen.update(messages=len(found.messages), gaps=found.plan.start > 0, snapshots=len(found.plan.snapshots))
        seen["crashes"] += len(audits) - 1
        audits.clear()
    assert min(seen.values()) > 0, f"the histories have nothing to audit: {seen}"
