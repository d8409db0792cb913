"""Audits of simulated histories with kills, power failures and compaction find no violation."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.pipeline.direct import Audited, audited, export
from tests.simulation import branch_world, group_world, half_world, link_world
from tests.simulation.steps import Step, steps_of
from tests.simulation.world import OPTIONS, World

SEEDS = 4
BRANCH_SEEDS = (9, 11, 12, 13, 16, 17)
"""Seeds of histories in which branches get as far as the second phase; in most histories they do not."""
LINK_SEEDS = 8
HALF_SEEDS = 6
GROUP_SEEDS = 4
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
        self.audits.append(audited(export(self.storage, self.folder)))


@pytest.mark.slow
@pytest.mark.rule("PIPE-5")
@pytest.mark.parametrize("deliveries", [False, True], ids=["no deliveries", "deliveries"])
def test_histories_of_branches_are_clean(deliveries: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branch_world, "OPTIONS", replace(branch_world.OPTIONS, deliveries=deliveries))
    seen: Counter[str | None] = Counter()
    for seed in BRANCH_SEEDS:
        world = WatchedBranches(seed, tmp_path / str(seed))
        world.run(steps_of(seed, 300, WEIGHTS))
        world.audits.append(audited(export(world.storage, world.folder)))
        for found in world.audits:
            assert found.wrong == [], f"seed {seed}"
            seen.update(row["outcome"] for row in found.branches)
    assert seen.keys() >= {"committed", "rolled back", "prepared", "heuristically committed"}


class WatchedLinks(link_world.LinkWorld):
    """A world of exactly-once links whose journal is audited after each crash."""

    def __init__(self, seed: int, folder: Path) -> None:
        super().__init__(seed)
        self.folder = folder
        self.audits: list[Audited] = []

    def audit(self) -> None:
        self.audits.append(audited(export(self.site.storage, self.folder)))

    def _crash(self, step: Step) -> None:
        super()._crash(step)
        self.audit()


@pytest.mark.slow
@pytest.mark.rule("PIPE-5")
def test_histories_of_exactly_once_links_are_clean(tmp_path: Path) -> None:
    seen: Counter[str] = Counter()
    for seed in range(LINK_SEEDS):
        world = WatchedLinks(seed, tmp_path / str(seed))
        world.run(steps_of(seed, 400, link_world.WEIGHTS))
        world.audit()
        for found in world.audits:
            assert found.wrong == [], f"seed {seed}"
            seen.update(messages=len(found.messages), gaps=found.plan.start > 0, snapshots=len(found.plan.snapshots))
    assert min(seen.values()) > 0, f"the histories have nothing to audit: {seen}"


class WatchedHalf(half_world.HalfWorld):
    """A world of half messages whose journal is audited after each crash."""

    def __init__(self, seed: int, folder: Path) -> None:
        super().__init__(seed)
        self.folder = folder
        self.audits: list[Audited] = []

    def audit(self) -> None:
        self.audits.append(audited(export(self.site.storage, self.folder)))

    def _crash(self, step: Step) -> None:
        super()._crash(step)
        self.audit()


@pytest.mark.slow
@pytest.mark.rule("PIPE-5")
def test_histories_of_half_messages_are_clean(tmp_path: Path) -> None:
    seen: Counter[str] = Counter()
    for seed in range(HALF_SEEDS):
        world = WatchedHalf(seed, tmp_path / str(seed))
        world.run(steps_of(seed, 400, half_world.WEIGHTS))
        world.audit()
        for found in world.audits:
            assert found.wrong == [], f"seed {seed}"
            seen.update(messages=len(found.messages), gaps=found.plan.start > 0, snapshots=len(found.plan.snapshots))
    assert min(seen.values()) > 0, f"the histories have nothing to audit: {seen}"


class WatchedGroups(group_world.GroupWorld):
    """A world of consumer groups whose journal is audited after each crash."""

    def __init__(self, seed: int, folder: Path) -> None:
        super().__init__(seed)
        self.folder = folder
        self.audits: list[Audited] = []

    def audit(self) -> None:
        self.audits.append(audited(export(self.site.storage, self.folder)))

    def _crash(self, step: Step) -> None:
        super()._crash(step)
        self.audit()


@pytest.mark.slow
@pytest.mark.rule("PIPE-5")
def test_histories_of_consumer_groups_are_clean(tmp_path: Path) -> None:
    seen: Counter[str] = Counter()
    for seed in range(GROUP_SEEDS):
        world = WatchedGroups(seed, tmp_path / str(seed))
        world.run(steps_of(seed, 250, group_world.WEIGHTS))
        world.audit()
        for found in world.audits:
            assert found.wrong == [], f"seed {seed}"
            seen.update(messages=len(found.messages), gaps=found.plan.start > 0, snapshots=len(found.plan.snapshots))
    assert min(seen.values()) > 0, f"the histories have nothing to audit: {seen}"
