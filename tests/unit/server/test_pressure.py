"""Publishers wait while a resource is short."""

from __future__ import annotations

import asyncio

import pytest

from escrowmq.core.engine import TIGHT_LIMIT
from escrowmq.server import pressure as module
from escrowmq.server.connection import Pause
from escrowmq.server.intake import EVENTS
from escrowmq.server.pressure import ALARM_CHECK_MS
from tests.unit.server.benches import on_loop, until
from tests.unit.server.scenes import HEADER, Scene


@pytest.fixture(autouse=True)
def _fakes(fake_protocol: None) -> None:
    """Endpoints are fakes."""


def test_an_alarm_blocks_publishers_until_it_ends() -> None:
    async def test() -> None:
        scene = Scene()
        publisher, reader = scene.connect(), scene.connect()
        scene.runtime.publishing(publisher[2])
        scene.resident = 2000
        scene.bench.ahead_ms += ALARM_CHECK_MS
        await scene.bench.turns.synced()
        await until(lambda: publisher[2].told)
        assert publisher[2].told == [("block", "low on memory")]
        assert not publisher[0].paused, "it may leave"
        scene.runtime.waiting(publisher[2])
        assert publisher[0].paused == Pause.ALARM
        assert not reader[2].told
        assert not reader[0].paused
        late = scene.connect()
        scene.runtime.publishing(late[2])
        assert late[2].told[-1] == ("block", "low on memory")
        await scene.bench.turns.synced()
        scene.resident = 0
        scene.bench.ahead_ms += ALARM_CHECK_MS
        await scene.bench.turns.synced()
        await until(lambda: late[2].told[-1] == ("block", ""))
        for connection, _, endpoint in (publisher, late):
            assert endpoint.told[-2:] == [("block", "low on memory"), ("block", "")]
            assert not connection.paused
        await until(lambda: publisher[2].heard[-1] == b"", "the reading of what was kept back")
        assert late[2].heard == [HEADER], "it has kept nothing back"
        await scene.bench.close()

    on_loop(test)


def test_an_alarm_that_is_over_before_a_publisher_was_told_is_not_told() -> None:
    async def test() -> None:
        scene = Scene(connections=2 * EVENTS)
        publishers = []
        for _ in range(2 * EVENTS):
            publisher = scene.connect()[2]
            scene.runtime.publishing(publisher)
            publishers.append(publisher)
            await asyncio.sleep(0)
        pressure = scene.runtime._pressure
        scene.resident = 2000
        pressure.check_alarms()
        while not publishers[0].told:  # noqa: ASYNC110 - iterations are counted
            await asyncio.sleep(0)
        assert sum(bool(publisher.told) for publisher in publishers) == EVENTS, "so many in one iteration"
        scene.resident = 0
        pressure.check_alarms()
        over: list[bool] = []
        scene.runtime.intake.defer(lambda: over.append(True))
        await until(lambda: over)
        told = [[each[1] for each in publisher.told] for publisher in publishers]
        assert told == [["low on memory", ""]] * EVENTS + [[]] * EVENTS
        await scene.bench.close()

    on_loop(test)


def test_queues_keep_less_in_memory_before_anybody_must_wait() -> None:
    async def test() -> None:
        scene = Scene()
        broker = scene.bench.broker
        usual = broker.engine.resident_limit
        for scene.resident, expected in ((699, usual), (700, TIGHT_LIMIT), (670, TIGHT_LIMIT), (600, usual)):
            scene.bench.ahead_ms += ALARM_CHECK_MS
            await scene.bench.turns.synced()
            assert broker.engine.resident_limit == expected
            assert not scene.runtime.alarms.reason
        await scene.bench.close()

    on_loop(test)


def test_publishers_wait_while_the_disk_does_not_keep_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UNWRITTEN_LIMIT", 10_000)

    async def test() -> None:
        scene = Scene()
        publisher, reader = scene.connect(), scene.connect()
        scene.runtime.publishing(publisher[2])
        scene.bench.turns.begin()
        scene.bench.publish(scene.bench.queue(), bytes(20_000))
        scene.runtime._pressure.watch()
        assert publisher[0].paused == Pause.JOURNAL
        assert not reader[0].paused
        late = scene.connect()
        scene.runtime.publishing(late[2])
        assert late[0].paused == Pause.JOURNAL
        await until(lambda: not publisher[0].paused and not late[0].paused, "the end of the wait")
        assert scene.bench.journal.pending_bytes < 5_000
        await scene.bench.close()

    on_loop(test)


@pytest.mark.rule("FAIR-3")
def test_the_broker_is_told_that_nothing_may_grow_and_that_it_may_again(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        scene = Scene()
        engine = scene.bench.broker.engine
        for resident, scarcity in ((1000, ""), (1100, "low on memory"), (1000, ""), (1100, "low on memory"), (0, "")):
            scene.resident = resident
            scene.runtime._pressure.check_alarms()
            assert engine.scarcity == scarcity
        await scene.bench.close()

    on_loop(test)
    assert caplog.text.count("low on memory in spite of the alarm: nothing new can be declared or bound") == 2
    assert caplog.text.count("clients may declare, bind and begin branches again") == 2
