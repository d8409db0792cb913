"""The broker's time is steady, and follows the machine's time slowly, also over restarts."""

from __future__ import annotations

import random
import time

import pytest

from escrowmq.core.broker import Broker
from escrowmq.core.records.changes import encode_change
from escrowmq.core.records.kinds import Kind
from escrowmq.journal.journal import Journal
from escrowmq.server import clock as module
from escrowmq.server.clock import SLOWNESS, STEP_MS, Clock, ClockRecorder
from escrowmq.server.start import recover
from tests.unit.core.site import Site
from tests.unit.core.xa_site import OK, X, XaSite

SECOND = 10**9
HOUR = 3600 * SECOND


class Machine:
    """A machine whose time can be set."""

    def __init__(self) -> None:
        self.steady = 5 * SECOND
        self.wall = 1_700_000_000 * SECOND

    def pass_time(self, ns: int) -> None:
        self.steady += ns
        self.wall += ns

    def clock(self, behind_ms: int = 0) -> Clock:
        return Clock(behind_ms, wall=lambda: self.wall, steady=lambda: self.steady)


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_the_clock_of_the_system_is_the_default() -> None:
    clock = Clock()
    assert abs(clock() - time.time_ns()) < 60 * SECOND


def test_without_changes_it_is_the_machine_s_time(machine: Machine) -> None:
    clock = machine.clock()
    for _ in range(5):
        machine.pass_time(7 * SECOND)
        assert clock() == machine.wall
    assert clock.behind_ns == 0


@pytest.mark.parametrize("step", [-8 * HOUR, -3 * SECOND, 3 * SECOND, 8 * HOUR])
def test_a_step_is_followed_slowly(machine: Machine, step: int, caplog: pytest.LogCaptureFixture) -> None:
    clock = machine.clock()
    before = clock()
    machine.wall += step
    assert clock() == before
    machine.pass_time(10 * SECOND)
    assert clock() - before == 10 * SECOND + (SECOND if step > 0 else -SECOND)
    for _ in range(SLOWNESS):
        machine.pass_time(abs(step))
        clock()
    assert clock() == machine.wall
    (line,) = caplog.messages
    assert f"set {'forward' if step > 0 else 'back'} by {abs(step) / SECOND:.1f} s" in line


def test_small_corrections_are_not_worth_a_line(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    clock = machine.clock()
    for _ in range(20):
        machine.pass_time(SECOND)
        machine.wall += SECOND // 20
        clock()
    assert clock() == machine.wall
    assert not caplog.messages


def test_it_never_goes_back_and_catches_up_at_once_only_after_a_day(machine: Machine) -> None:
    clock = machine.clock()
    before = clock()
    machine.wall -= 100 * 24 * HOUR
    assert clock() == before
    machine.pass_time(SECOND)
    assert clock() > before
    machine.wall = before + STEP_MS * 1_000_000 + SECOND
    assert clock() == machine.wall


def test_the_difference_is_recorded_while_it_changes(machine: Machine) -> None:
    site = Site()
    clock = machine.clock()
    recorder = ClockRecorder(site.broker.engine, clock)
    recorder()
    assert site.broker.engine.behind_ms == 0
    machine.wall += HOUR
    clock()
    recorder()
    recorder()
    site.turn()
    again = site.restart()
    assert again.broker.engine.behind_ms == 3_600_000
    again.snapshot()
    assert again.restart().broker.engine.behind_ms == 3_600_000
    machine.pass_time(30 * SECOND)
    clock()
    recorder()
    assert site.broker.engine.behind_ms == 3_597_000


class Life:
    """A broker over restarts on a machine whose time can be set."""

    def __init__(self, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "_wall", lambda: machine.wall)
        self.machine = machine
        self.site = XaSite(now=machine.wall // 1_000_000)
        self._begin()

    def _begin(self) -> None:
        self.clock = self.machine.clock(self.site.broker.engine.behind_ms)
        self.recorder = ClockRecorder(self.site.broker.engine, self.clock)

    def turn(self) -> None:
        self.site.broker.engine.now = self.clock() // 1_000_000
        self.site.turn()
        self.recorder()
        self.site.sync()

    def pass_time(self, ns: int, steps: int = 10) -> None:
        for _ in range(steps):
            self.machine.pass_time(ns // steps)
            self.turn()

    def restart(self) -> None:
        self.site = self.site.restart()
        module.resume(self.site.broker.engine, 0)
        self._begin()
        self.turn()


@pytest.mark.parametrize("ahead_ms", [0, 8 * 3600 * 1000, STEP_MS + 1000])
def test_a_start_does_not_go_back_behind_the_journal(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, ahead_ms: int
) -> None:
    monkeypatch.setattr(module, "_wall", lambda: machine.wall)
    wall_ms = machine.wall // 1_000_000
    site = Site(now=wall_ms + ahead_ms)
    site.queue()
    site.turn()
    journal = Journal.open(site.storage)
    broker = Broker(journal, random.Random(1))
    recover(journal, broker)
    expected = ahead_ms if ahead_ms < STEP_MS else 0
    assert broker.engine.now - wall_ms == expected
    assert broker.engine.behind_ms == -expected
    assert ("follows slowly" in caplog.text) is bool(expected)


def wall_ms_of(machine: Machine) -> int:
    return machine.wall // 1_000_000


def test_records_from_before_a_step_of_days_do_not_count(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's time was right after a step back by more than a day; the journal has newer records before it."""
    monkeypatch.setattr(module, "_wall", lambda: machine.wall)
    ahead = Site(now=wall_ms_of(machine) + STEP_MS + 1000)
    ahead.queue()
    ahead.turn()
    back = Site(ahead.storage, now=wall_ms_of(machine))
    back.publish("q", b"1")
    back.turn()
    machine.pass_time(3600 * SECOND)  # now the newest record is less than a day ahead
    broker = Broker(Journal.open(ahead.storage), random.Random(1))
    recover(broker.log, broker)  # type: ignore[arg-type]
    assert broker.engine.now == wall_ms_of(machine)


def test_a_start_days_before_the_journal_is_remembered_by_the_next(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first start is more than a day before the newest record, the second one less than that."""
    monkeypatch.setattr(module, "_wall", lambda: machine.wall)
    ahead = Site(now=wall_ms_of(machine) + STEP_MS + 1000)
    ahead.queue()
    ahead.turn()
    for _ in range(2):
        log = Journal.open(ahead.storage)
        broker = Broker(log, random.Random(1))
        recover(log, broker)
        assert broker.engine.now == wall_ms_of(machine)
        batch = log.take_batch(broker.engine.now * 1000)
        if batch is not None:
            batch.write()
            log.batch_done(batch)
        machine.pass_time(60 * SECOND)


def test_a_difference_whose_record_was_lost_is_recorded_at_the_start(machine: Machine) -> None:
    site = Site(now=wall_ms_of(machine))
    site.queue()
    site.turn()
    machine.wall -= HOUR  # and a crash, before this is recorded
    again = site.restart()
    module.resume(again.broker.engine, again.now, lambda: machine.wall)
    again.sync()
    assert again.restart().broker.engine.behind_ms == -3_600_000


def test_small_changes_of_the_difference_do_not_add_up_over_restarts(machine: Machine) -> None:
    site = Site(now=wall_ms_of(machine) - 3_600_000)
    site.broker.engine.behind_ms = 3_600_000
    site.broker.engine.log.append(Kind.COUNTERS, encode_change(behind_ms=3_600_000))
    site.sync()
    for _ in range(3):
        site = site.restart()
        module.resume(
            site.broker.engine, wall_ms_of(machine) - site.broker.engine.behind_ms + 900, lambda: machine.wall
        )
        site.sync()
    assert site.restart().broker.engine.behind_ms == 3_600_000 - 3 * 900


def test_a_recorded_difference_of_a_day_does_not_put_the_time_before_the_last_record(machine: Machine) -> None:
    engine = Site(now=wall_ms_of(machine)).broker.engine
    engine.behind_ms = -STEP_MS - 1000
    last_ms = wall_ms_of(machine) + 16 * 3_600_000
    module.resume(engine, last_ms, lambda: machine.wall)
    assert engine.now == last_ms


OFFSETS = pytest.mark.parametrize("set_by", [8 * HOUR, -8 * HOUR], ids=["started behind", "started ahead"])


@OFFSETS
def test_a_time_to_live_lasts_as_long_as_it_says(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, set_by: int
) -> None:
    life = Life(machine, monkeypatch)
    life.site.publish("q", b"long", ttl=6 * 3600 * 1000)
    life.site.publish("to", b"short", ttl=30_000)
    life.turn()
    machine.wall += set_by
    life.turn()
    life.restart()
    assert life.site.waiting() == ([b"long"], [b"short"])
    life.pass_time(26 * SECOND)
    assert life.site.waiting() == ([b"long"], [b"short"])
    life.pass_time(10 * SECOND)
    assert life.site.waiting() == ([b"long"], [])
    life.restart()
    life.pass_time(5 * HOUR)
    assert life.site.waiting() == ([b"long"], [])
    life.pass_time(2 * HOUR)
    assert life.site.waiting() == ([], [])


@OFFSETS
def test_the_age_of_a_branch_in_doubt_is_right(machine: Machine, monkeypatch: pytest.MonkeyPatch, set_by: int) -> None:
    life = Life(machine, monkeypatch)
    life.site.prepared(settle=0)
    machine.wall += set_by
    life.pass_time(10 * SECOND)
    life.restart()
    life.pass_time(10 * SECOND)
    (branch,) = life.site.branches.by_xid.values()
    assert 18_000 <= life.site.now - branch.prepared_at <= 22_000
    assert life.site.coordinator.commit(X, one_phase=False).status is OK


@OFFSETS
def test_the_times_of_a_stream_stay_in_order(machine: Machine, monkeypatch: pytest.MonkeyPatch, set_by: int) -> None:
    life = Life(machine, monkeypatch)
    life.site.queue("s", {"x-queue-type": "stream"})
    times = []
    for i in range(6):
        times.append(life.site.now)
        life.site.publish("s", b"%d" % i)
        life.pass_time(10 * SECOND)
        if i == 1:
            machine.wall += set_by
        if i == 3:
            life.restart()
    assert times == sorted(times)
    assert times[-1] - times[0] in range(45_000, 55_001)
    stream = life.site.vhost.queue("s")
    for i, at in enumerate(times):
        assert stream.log.first_at(at) == i + 1  # type: ignore[attr-defined]


def anchored_once(self: Clock) -> int:
    """Ignore all changes of the machine's time after the start."""
    steady = self._steady()
    self._now += steady - self._steady_seen
    self._steady_seen = steady
    return self._now


def test_a_clock_that_is_anchored_once_is_found(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Clock, "__call__", anchored_once)
    with pytest.raises(AssertionError):
        test_a_time_to_live_lasts_as_long_as_it_says(machine, monkeypatch, 8 * HOUR)
