"""Memory, disk, and the alarms."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

import psutil
import pytest

from escrowmq.server.resources import (
    Alarms,
    allow_descriptors,
    memory_bytes,
    resident_bytes,
)


class Machine:
    """Figures that a test sets."""

    def __init__(self) -> None:
        self.resident = 0
        self.free = 10_000

    def alarms(self, memory: int = 1000, disk: int = 500) -> Alarms:
        return Alarms(memory, disk, lambda: self.resident, lambda: self.free)


def test_an_alarm_starts_at_the_limit_and_ends_a_little_below() -> None:
    machine = Machine()
    alarms = machine.alarms()
    seen = []
    for machine.resident in (999, 1000, 960, 949, 999, 1001):
        changed = alarms.check()
        seen.append((changed, alarms.memory, alarms.reason))
    on, off = "low on memory", ""
    assert seen == [
        (False, False, off),
        (True, True, on),
        (False, True, on),
        (True, False, off),
        (False, False, off),
        (True, True, on),
    ]


def test_memory_is_pressing_before_the_alarm() -> None:
    machine = Machine()
    alarms = machine.alarms()
    seen = []
    for machine.resident in (699, 700, 666, 664, 2000):
        alarms.check()
        seen.append(alarms.pressing)
    assert seen == [False, True, True, False, True]


def test_the_disk_likewise() -> None:
    machine = Machine()
    alarms = machine.alarms()
    seen = []
    for machine.free in (500, 499, 510, 530):
        alarms.check()
        seen.append(alarms.disk)
    assert seen == [False, True, True, False]


def test_both_have_one_reason() -> None:
    machine = Machine()
    machine.resident, machine.free = 2000, 0
    alarms = machine.alarms()
    alarms.check()
    assert alarms.reason == "low on memory & disk"
    machine.resident = 0
    alarms.check()
    assert alarms.reason == "low on disk"


def test_a_limit_of_zero_is_none() -> None:
    machine = Machine()
    machine.resident, machine.free = 1 << 40, 0
    alarms = machine.alarms(0, 0)
    assert not alarms.check()
    assert alarms.reason == ""


def test_the_figures_are_the_system_s() -> None:
    expected = psutil.Process(os.getpid()).memory_info().rss
    assert resident_bytes() == pytest.approx(expected, rel=0.2)
    assert 0 < memory_bytes() <= psutil.virtual_memory().total


def test_the_limit_of_open_files_is_raised_as_far_as_the_system_allows() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))
        assert allow_descriptors(50) == 50
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 300, "enough is enough"
        assert allow_descriptors(500) == 500
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 700
        if hard != resource.RLIM_INFINITY:
            assert allow_descriptors(hard) == hard - 200
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_memory_that_is_freed_leaves_the_process() -> None:
    # A separate process, because memory freed by other tests would be reused, and no growth would be visible.
    script = """
from escrowmq.server.resources import give_back_memory, resident_bytes, return_large_blocks
return_large_blocks()
before = resident_bytes()
blocks = [bytearray(b"x") * (4 << 20) for _ in range(16)]
grown = resident_bytes()
del blocks
give_back_memory()
print(grown - before, resident_bytes() - before)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    grown, left = map(int, done.stdout.split())
    assert grown > 48 << 20
    assert left < 16 << 20


@pytest.mark.rule("FAIR-3")
@pytest.mark.parametrize(
    ("resident", "free", "scarcity"),
    [
        (1099, 250, ""),
        (1100, 250, "low on memory"),
        (1099, 249, "low on disk"),
        (1100, 249, "low on disk"),
    ],
)
def test_a_reserve_beyond_the_alarm_is_kept_for_what_sets_free(resident: int, free: int, scarcity: str) -> None:
    machine = Machine()
    machine.resident, machine.free = resident, free
    alarms = machine.alarms()
    alarms.check()
    assert alarms.scarcity == scarcity
    machine.resident, machine.free = 0, 10_000
    alarms.check()
    assert alarms.scarcity == ""
