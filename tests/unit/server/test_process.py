"""The broker process as the admin service sees it."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from escrowmq.admin.ports import BrokerProcess
from escrowmq.server.maintenance import Maintenance, Stage
from escrowmq.server.passwords import HASHER, Passwords
from escrowmq.server.process import ServerProcess
from tests.unit.server.benches import on_loop
from tests.unit.server.scenes import Scene


@pytest.fixture(autouse=True)
def _fakes(fake_protocol: None) -> None:
    """Endpoints are fakes."""


def process_of(scene: Scene, failure: str = "") -> ServerProcess:
    """Return the process around a scene; its snapshots end with `failure`."""

    def snapshot_now(done: Any, *, compact: bool) -> None:
        asyncio.get_running_loop().call_soon(done, failure + (" of compaction" if compact else ""))

    maintenance = SimpleNamespace(snapshot_now=snapshot_now, stage=Stage.IDLE, longest_capture_ms=1.25)
    return ServerProcess(
        scene.runtime,
        cast("Maintenance", maintenance),
        ThreadPoolExecutor(1),
        Passwords(("PLAIN", "SCRAM-SHA-512")),
        data_dir=Path("/data"),
        free_bytes=lambda: 7,
    )


def as_port(process: ServerProcess) -> BrokerProcess:
    """Checked by mypy: the server implements the port."""
    return process


def test_a_change_is_on_disk_when_it_returns() -> None:
    async def test() -> None:
        scene = Scene()
        process = process_of(scene)
        assert await process.durably(lambda: scene.bench.broker.directory.add_vhost("orders"))
        assert scene.bench.journal.synced_lsn == scene.bench.journal.end_lsn > 0
        await scene.bench.close()

    on_loop(test)


def test_a_password_is_hashed_by_the_executor() -> None:
    async def test() -> None:
        scene = Scene()
        hashes = await process_of(scene).hash_password("secret")
        assert HASHER.verify(hashes.password_hash, "secret")
        assert [each.partition("$")[0] for each in hashes.scram_hashes] == ["SCRAM-SHA-512"]
        await scene.bench.close()

    on_loop(test)


def test_a_snapshot_returns_the_reason_of_its_failure() -> None:
    async def test() -> None:
        scene = Scene()
        assert await process_of(scene).snapshot(compact=False) == ""
        assert await process_of(scene, "failure").snapshot(compact=True) == "failure of compaction"
        await scene.bench.close()

    on_loop(test)


def test_figures_tell_the_load_and_the_limits() -> None:
    async def test() -> None:
        scene = Scene()
        connection = scene.connect()[0]
        process = process_of(scene)
        figures = process.figures()
        assert list(process.connections) == [connection]
        assert (figures["connections"], figures["connections_accepted"], figures["alarms"]) == (1, 1, [])
        assert figures["unavailable_queues"] == 0
        assert (figures["disk"], figures["memory"]["limit_bytes"]) == ({"free_bytes": 7, "limit_bytes": 0}, 1000)
        assert (figures["journal"]["maintenance"], figures["journal"]["capture_ms_longest"]) == ("idle", 1.2)
        await scene.bench.close()

    on_loop(test)
