"""Connections are visited about once a second, in groups."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.server import ticking as module
from escrowmq.server.connection import Pause
from escrowmq.server.ticking import ROUND_MS
from tests.unit.server.benches import on_loop, until
from tests.unit.server.scenes import Scene


@pytest.fixture(autouse=True)
def _fakes(fake_protocol: None) -> None:
    """Endpoints are fakes."""


async def ticking() -> tuple[Scene, Any]:
    """Return a connection that the clock has visited a few times."""
    scene = Scene()
    _, _, endpoint = scene.connect()
    scene.runtime.admitted(endpoint, "alice", "/")
    scene.runtime.ticker.start()
    await until(lambda: len(endpoint.told) > 2)
    return scene, endpoint


def test_a_broker_that_was_held_up_takes_no_client_for_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROUND_MS", 1)

    async def test() -> None:
        scene, endpoint = await ticking()
        scene.bench.ahead_ms += 3_600_000  # for example, the machine was suspended
        before = len(endpoint.told)
        await until(lambda: len(endpoint.told) > before + 2)
        assert max(silent for _, silent, _ in endpoint.told) < 60_000
        assert endpoint.told[-1][2] >= 3_600_000, "but a heartbeat is due from here"
        scene.runtime.stop()
        await scene.bench.close()

    on_loop(test)


def test_connections_are_looked_after_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROUND_MS", 1)

    async def test() -> None:
        scene, endpoint = await ticking()
        assert {told[0] for told in endpoint.told} == {"tick"}
        scene.runtime.stop()
        await scene.bench.close()

    on_loop(test)


def test_a_group_has_a_bounded_number_of_connections_and_a_round_visits_each_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "VISITS", 10)

    async def test() -> None:
        scene = Scene(connections=35)
        connections = [scene.connect() for _ in range(35)]
        ticker = scene.runtime.ticker
        groups = [ticker._next_group() for _ in range(4)]
        assert [len(group) for group in groups] == [10, 10, 10, 5]
        assert {each for group in groups for each in group} == {connection for connection, _, _ in connections}
        assert ticker._interval_ms == ROUND_MS / 4, "the groups are spread over the round"
        await scene.bench.close()

    on_loop(test)


class Unread:
    """A connection to whose client bytes wait to be sent. Each step is a tick, one second after the last one."""

    def __init__(self, scene: Scene) -> None:
        self.connection, self.transport, self.endpoint = scene.connect()
        self.scene = scene
        scene.runtime.admitted(self.endpoint, "alice", "/")
        self.now = self.connection.opened_ms

    def send(self, data: bytes) -> None:
        """The endpoint has output, which the socket does not take."""
        self.endpoint.says = data
        self.transport.unsent += len(data)
        self.connection.flush()

    def ticks(self, seconds: int) -> bool:
        """Return whether the connection was aborted."""
        for _ in range(seconds):
            self.now += 1000
            self.connection.tick(self.now, 10_000)
        return self.transport.aborted()


@pytest.mark.rule("FAIR-2")
def test_a_client_that_reads_nothing_is_closed_although_it_is_not_read_either(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        scene = Scene()
        client = Unread(scene)
        client.send(bytes(5 << 20))
        client.connection.pause_writing()
        assert client.connection.paused == Pause.UNSENT
        assert not client.ticks(60)
        client.send(b"a heartbeat is no progress")
        assert not client.ticks(60)
        assert client.ticks(1)
        await scene.bench.close()

    on_loop(test)
    assert "it has read nothing for 120 s, and 5242906 bytes are unsent (limits.unread_seconds)" in caplog.text


def test_a_client_that_reads_slowly_or_has_nothing_to_read_is_not_closed() -> None:
    async def test() -> None:
        scene = Scene()
        client = Unread(scene)
        assert not client.ticks(300), "nothing waits"
        client.send(bytes(1000))
        for _ in range(5):
            client.transport.unsent -= 1
            assert not client.ticks(120)
        client.transport.unsent = 0
        assert not client.ticks(300)
        client.send(b"more")
        assert not client.ticks(120)
        assert client.ticks(1)
        await scene.bench.close()

    on_loop(test)


def test_a_client_may_read_nothing_for_any_time_without_the_limit_and_while_the_broker_is_held_up() -> None:
    async def test() -> None:
        scene = Scene()
        client = Unread(scene)
        client.send(b"data")
        client.ticks(100)
        scene.runtime.ticker.held_up_ms += 100_000
        client.now += 100_000
        assert not client.ticks(19)
        scene.runtime.unread_ms = 0
        assert not client.ticks(1000)
        await scene.bench.close()

    on_loop(test)


def test_a_connection_that_closed_in_the_middle_of_a_round_is_not_visited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "VISITS", 1)

    async def test() -> None:
        scene = Scene()
        first, second = scene.connect(), scene.connect()
        ticker = scene.runtime.ticker
        assert ticker._next_group() == [second[0]]
        first[0].connection_lost(None)
        assert ticker._next_group() == []
        await scene.bench.close()

    on_loop(test)


def test_the_end_of_a_round_is_told_once_for_each_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "VISITS", 1)
    monkeypatch.setattr(module, "ROUND_MS", 1)

    async def test() -> None:
        scene = Scene()
        endpoints = [scene.connect()[2] for _ in range(3)]
        for endpoint in endpoints:
            scene.runtime.admitted(endpoint, "alice", "/")
        rounds: list[int] = []
        scene.runtime.ticker._end_of_round = lambda: rounds.append(sum(len(each.told) for each in endpoints))
        scene.runtime.ticker.start()
        await until(lambda: len(rounds) >= 3)
        assert rounds[:3] == [3, 6, 9]
        scene.runtime.stop()
        await scene.bench.close()

    on_loop(test)
