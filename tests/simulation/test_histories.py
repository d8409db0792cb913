"""Histories of the whole server core with crashes and faults break no rule that the oracle checks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from escrowmq.journal.errors import JournalDamaged, JournalVersionUnknown
from tests.simulation.__main__ import main, report
from tests.simulation.history import Failure, history, shrink
from tests.simulation.steps import WEIGHTS, Step, steps_of
from tests.simulation.world import World

KINDS = [kind for kind, weight in WEIGHTS.items() for _ in range(1 + weight // 8)]
NUMBER = st.integers(0, 255)
STEPS = st.lists(st.builds(Step, st.sampled_from(KINDS), NUMBER, NUMBER, NUMBER), max_size=80)
TROUBLE = {
    "crash",
    "kill",
    "restart",
    "power fails in",
    "sync fails in",
    "reads fail",
    "append refused in",
    "disk fills",
}

NEVER_MISSING = {
    "ack",
    "channels closed with 404",
    "channels closed with 405",
    "channels closed with 506",
    "clock set back",
    "clock set forward",
    "commits",
    "commits over several queues",
    "commits refused",
    "confirms",
    "counts checked",
    "crash",
    "dead-lettered by the broker",
    "deletions cut off",
    "delivered",
    "failed syncs",
    "full disks",
    "refused appends",
    "queues unavailable",
    "kill",
    "maintenance: files",
    "maintenance: housekeep",
    "maintenance: relocate",
    "maintenance: snapshot",
    "maintenance: write snapshot",
    "power failures",
    "redelivered",
    "refused",
    "reject",
    "requeue",
    "restarts",
    "returned",
    "returns",
    "rollbacks",
    "transactions dropped by a close",
    "transactions undone by a crash",
    "undone by a crash",
}


@pytest.mark.slow
@pytest.mark.rule("TX-2", "TX-3", "TX-5", "TX-7", "TX-8", "TX-10", "TX-11")
@pytest.mark.rule("ORD-1", "ORD-2", "ORD-3", "ORD-4", "ORD-5", "ORD-6")
@pytest.mark.rule("EXC-1", "EXC-2", "EXC-3", "DUR-1", "DUR-2", "DUR-3", "DUR-4", "DUR-5")
@pytest.mark.parametrize("first", range(0, 120, 20))
def test_histories_by_seed_break_no_rule(first: int) -> None:
    for seed in range(first, first + 20):
        result = history(seed)
        if isinstance(result, Failure):
            pytest.fail(f"seed {seed}: {report(shrink(result, tries=300))}")


@pytest.mark.slow
def test_histories_by_seed_cover_all_events() -> None:
    events: Counter[str] = Counter()
    seed = 0
    while not events.keys() >= NEVER_MISSING:
        assert seed < 400, f"not covered by {seed} histories: {NEVER_MISSING - events.keys()}"
        result = history(seed)
        assert not isinstance(result, Failure), result
        events.update({event: number for event, number in result.items() if number})
        seed += 1


@pytest.mark.rule("TX-5", "TX-8", "ORD-1", "ORD-2", "ORD-5", "DUR-1", "DUR-2")
@given(STEPS, st.integers(0, 2**16))
@settings(max_examples=60)
def test_generated_histories_break_no_rule(steps: list[Step], seed: int) -> None:
    World(seed).run(steps)


@pytest.mark.rule("ORD-5")
@pytest.mark.parametrize("seed", range(12))
def test_a_restart_restores_the_state(seed: int) -> None:
    world = World(seed)
    for step in steps_of(seed, 200):
        if step.kind not in TROUBLE:
            world.step(step)
    world.restart(power_fails=True, clean=True)  # compares before and after
    world.restart(power_fails=True, clean=True)
    world.finish()


DIGESTS = """
from tests.simulation.steps import steps_of
from tests.simulation.world import World
for seed in range(3):
    world = World(seed)
    world.run(steps_of(seed, 250))
    print(world.digest.hexdigest())
"""


def test_a_seed_determines_the_history_for_any_hash_seed() -> None:
    digests = {
        subprocess.run(
            [sys.executable, "-c", DIGESTS],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "1", "4711")
    }
    assert len(digests) == 1
    assert len(set(digests.pop().split())) == 3


def damage(seed: int, *, short: bool) -> str:
    """Run a history without crashes, damage the medium, and restart. Returns what the recovery did."""
    world = World(seed)
    for step in steps_of(seed, 120):
        if step.kind not in TROUBLE:
            world.step(step)
    world.pump()
    storage = world.storage
    name = world.rng.choice(storage.names())
    filled = len(storage.read(name, 0, storage.size(name)).rstrip(b"\0"))
    if short:
        storage.shorten(name, world.rng.randrange(filled))
    else:
        storage.flip(name, world.rng.randrange(8 * filled))
    world.oracle.die()
    try:
        world.restart(power_fails=True, damaged=True)
    except (JournalDamaged, JournalVersionUnknown):
        return "refused"
    recovery = world.server.journal.recovery
    world.finish()
    return "cut" if recovery.cut_file else "unharmed"


@pytest.mark.slow
@pytest.mark.rule("DUR-3")
@pytest.mark.parametrize("short", [False, True], ids=["flipped bit", "short file"])
def test_damage_is_refused_or_affects_only_the_end_of_the_log(short: bool) -> None:
    assert {damage(seed, short=short) for seed in range(60)} == {"refused", "cut", "unharmed"}


@pytest.mark.long
def test_very_many_histories_break_no_rule(capfd: pytest.CaptureFixture[str]) -> None:
    with capfd.disabled():
        arguments = ["--seeds", os.environ.get("LONG_SEEDS", "100000"), "--start", os.environ.get("LONG_START", "1000")]
        assert main([*arguments, "--jobs", str(os.cpu_count() or 1), "--events"]) == 0
