"""A leader whose disk is short of space hands over once, if there is a node that would lead."""

from __future__ import annotations

import time

import pytest

from escrowmq.server.replica import disk_relief
from escrowmq.server.replica.disk_relief import DiskRelief
from escrowmq.server.resources import Alarms
from tests.unit.server.benches import Bench, on_loop, until

LIMIT = 100


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_relief, "GRACE_SECONDS", 0.05)
    monkeypatch.setattr(disk_relief, "_RETRY_SECONDS", 0.05)


class Disk:
    """A leader with a disk of which `free` bytes are free. It must be created within a running loop."""

    def __init__(self, free: int) -> None:
        self.free = free
        self.obstacle = ""
        self.asked = 0
        self.hand_overs = 0
        self.bench = Bench()
        self._alarms = Alarms(0, LIMIT, lambda: 0, lambda: self.free)
        self.bench.turns.after.append(self._check)
        DiskRelief(self.bench.turns, self._alarms, self._why_not, self._hand_over)

    def turn(self) -> bool:
        self.bench.turns.begin()
        return True

    async def some_turns(self) -> None:
        """Take turns for longer than the leader waits."""
        end = time.monotonic() + 0.2
        await until(lambda: self.turn() and time.monotonic() > end)

    def _check(self) -> None:
        self._alarms.check()

    def _why_not(self) -> str:
        self.asked += 1
        return self.obstacle

    def _hand_over(self) -> None:
        self.hand_overs += 1


def test_a_leader_that_becomes_short_of_space_hands_over_once() -> None:
    async def test() -> None:
        disk = Disk(LIMIT)
        await disk.some_turns()
        assert not disk.asked
        disk.free = LIMIT - 1
        began = time.monotonic()
        await until(lambda: disk.turn() and disk.hand_overs)
        assert time.monotonic() - began >= 0.05
        await disk.some_turns()
        assert disk.hand_overs == 1
        await disk.bench.close()

    on_loop(test)


def test_a_leader_that_has_been_short_of_space_from_the_beginning_goes_on() -> None:
    async def test() -> None:
        disk = Disk(0)
        await disk.some_turns()
        assert not disk.asked
        disk.free = 10 * LIMIT
        await until(lambda: disk.turn() and not disk._alarms.disk)
        disk.free = 0
        await until(lambda: disk.turn() and disk.hand_overs)
        await disk.bench.close()

    on_loop(test)


def test_a_leader_waits_for_a_node_that_could_lead(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        disk = Disk(LIMIT)
        disk.obstacle = "there is none"
        await disk.some_turns()
        disk.free = 0
        await until(lambda: disk.turn() and disk.asked > 2)
        assert not disk.hand_overs
        disk.obstacle = ""
        await until(lambda: disk.turn() and disk.hand_overs)
        await disk.bench.close()

    on_loop(test)
    told = [record.message for record in caplog.records if "goes on leading" in record.message]
    assert told == ["the disk is short of space, and this node goes on leading: there is none"]
