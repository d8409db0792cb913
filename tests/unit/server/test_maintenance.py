"""Snapshots, deletion and compaction, in the background of a running broker."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from escrowmq.core.recovery import relocation
from escrowmq.journal.memory import MemoryStorage
from escrowmq.server import maintenance
from escrowmq.server.maintenance import CALM_MS, CHECK_MS, Maintenance, Stage
from tests.unit.server.benches import Bench, on_loop, until

BODY = bytes(1000)


class Scene:
    """A bench with maintenance."""

    def __init__(
        self,
        storage: MemoryStorage | None = None,
        snapshot_bytes: int = 1 << 30,
        ratio: float = 0.0,
        *,
        trims_prefix: bool = False,
    ) -> None:
        self.bench = Bench(storage)
        self.short = False
        self.told: list[tuple[int, int, int]] = []
        """The LSNs and the number of segments when `files_changed` was called."""
        self.files = ThreadPoolExecutor(1)
        self.maintenance = Maintenance(
            asyncio.get_running_loop(),
            self.bench.turns,
            self.files,
            snapshot_bytes=snapshot_bytes,
            compaction_ratio=ratio,
            short=lambda: self.short,
            trims_prefix=trims_prefix,
            files_changed=lambda *lsns: self.told.append((*lsns, len(self.names(".log")))),
        )
        self.bench.turns.begin()
        self.queue = self.bench.queue()

    async def publish(self, count: int) -> None:
        """Publish messages of a kilobyte, in runs of a hundred."""
        for _ in range(count // 100):
            self.bench.turns.begin()
            self.bench.publish(self.queue, *[BODY] * 100)
            await self.bench.turns.synced()

    async def consume(self, count: int) -> None:
        self.bench.turns.begin()
        for _ in range(count):
            assert self.bench.broker.engine.get(self.queue, auto_settle=True)
        await self.bench.turns.synced()

    async def later(self, ms: int) -> None:
        """Run a turn at a later time."""
        self.bench.ahead_ms += ms
        await self.bench.turns.synced()

    def names(self, ending: str) -> list[str]:
        return [name for name in self.bench.storage.names() if name.endswith(ending)]

    async def close(self) -> None:
        await self.bench.close()
        self.files.shutdown()

    def restarted_ready(self) -> int:
        bench = Bench(self.bench.storage)
        bench.turns.stop()
        return bench.broker.directory.vhosts["/"].queues["q"].ready


def test_a_snapshot_follows_so_many_bytes_of_log() -> None:
    async def test() -> None:
        scene = Scene(snapshot_bytes=500_000)
        await scene.publish(400)
        assert not scene.names(".snapshot")
        await scene.publish(200)
        await until(lambda: scene.maintenance.stage is Stage.IDLE and scene.names(".snapshot"))
        assert scene.bench.journal.snapshot_lsn > 500_000
        before = scene.bench.journal.snapshot_lsn
        await scene.publish(400)
        assert scene.bench.journal.snapshot_lsn == before
        await scene.close()
        assert scene.restarted_ready() == 1000

    on_loop(test)


def test_changes_while_a_snapshot_is_written_are_not_in_it_and_not_lost() -> None:
    async def test() -> None:
        scene = Scene()
        await scene.publish(300)
        gate = threading.Event()
        scene.files.submit(gate.wait, 30)
        scene.maintenance.snapshot_now(lambda _: None)
        await until(lambda: scene.maintenance.stage is Stage.SNAPSHOT)
        await scene.consume(50)
        await scene.publish(100)
        gate.set()
        await until(lambda: scene.maintenance.stage is Stage.IDLE and scene.names(".snapshot"))
        await scene.close()
        assert scene.restarted_ready() == 350

    on_loop(test)


def test_what_nodes_that_begin_to_follow_copy_is_told_again_when_dead_segments_are_gone() -> None:
    async def test() -> None:
        scene = Scene()
        await scene.publish(4000)
        await scene.consume(4000)
        scene.maintenance.snapshot_now(lambda _: None)
        await until(lambda: scene.told)
        await scene.later(CHECK_MS)
        journal = scene.bench.journal
        await until(lambda: scene.told[-1] == (journal.snapshot_lsn, journal.oldest_lsn, 1))
        await scene.close()

    on_loop(test)


def test_dead_segments_go_after_the_snapshot() -> None:
    async def test() -> None:
        scene = Scene()
        await scene.publish(4000)
        await scene.consume(4000)
        assert len(scene.names(".log")) >= 3
        answers: list[str] = []
        scene.maintenance.snapshot_now(answers.append)
        await until(lambda: answers)
        await scene.later(CHECK_MS)
        await until(lambda: len(scene.names(".log")) == 1)
        assert answers == [""]
        await scene.close()
        assert scene.restarted_ready() == 0

    on_loop(test)


def test_while_the_disk_is_short_dead_segments_do_not_wait_for_more_log() -> None:
    """Publishers are blocked then, so the journal would never grow enough."""

    async def test() -> None:
        scene = Scene()
        await scene.publish(4000)
        scene.short = True
        await scene.later(CHECK_MS)
        assert not scene.names(".snapshot"), "nothing is dead, it would only take room"
        scene.short = False
        await scene.consume(4000)
        await scene.later(CHECK_MS)
        assert not scene.names(".snapshot")
        scene.short = True
        await scene.later(CHECK_MS)
        await until(lambda: scene.maintenance.stage is Stage.IDLE and scene.names(".snapshot"))
        await scene.later(CHECK_MS)
        await until(lambda: len(scene.names(".log")) == 1)
        before = scene.names(".snapshot")
        await scene.later(CHECK_MS)
        assert scene.names(".snapshot") == before
        await scene.close()
        assert scene.restarted_ready() == 0

    on_loop(test)


def test_a_snapshot_that_fails_costs_nothing_and_is_told() -> None:
    class Stubborn(MemoryStorage):
        refuse = True

        def create(self, name: str) -> None:
            if self.refuse and ".snapshot" in name:
                raise OSError("no room for snapshots")
            super().create(name)

    async def test() -> None:
        storage = Stubborn(random.Random(1))
        scene = Scene(storage)
        await scene.publish(100)
        answers: list[str] = []
        scene.maintenance.snapshot_now(answers.append)
        await until(lambda: answers)
        assert "no room for snapshots" in answers[0]
        assert scene.maintenance.stage is Stage.IDLE
        storage.refuse = False
        scene.maintenance.snapshot_now(answers.append)
        await until(lambda: len(answers) == 2)
        assert answers[1] == ""
        await scene.close()
        assert scene.restarted_ready() == 100

    on_loop(test)


def test_sparse_segments_are_compacted_when_they_have_come_to_rest() -> None:
    async def test() -> None:
        scene = Scene(ratio=0.5)
        await scene.publish(3000)
        await scene.consume(900)  # most of the first segment
        answers: list[str] = []
        scene.maintenance.snapshot_now(answers.append)
        await until(lambda: answers and scene.maintenance.stage is Stage.IDLE)
        sparse = scene.bench.journal.sparse_segments(0.5)
        assert len(sparse) == 1
        await scene.later(CHECK_MS)
        assert scene.maintenance.stage is Stage.IDLE, "it may be on its way to empty"
        await scene.later(CALM_MS + CHECK_MS)
        await until(lambda: not scene.bench.journal.sparse_segments(0.5))
        for _ in range(3):
            await scene.later(CHECK_MS)
            await until(lambda: scene.maintenance.stage is Stage.IDLE)
        assert not [name for name in scene.names(".log") if name.startswith("0000000000000000.")]
        await scene.close()
        assert scene.restarted_ready() == 2100

    on_loop(test)


@pytest.mark.parametrize("trims_prefix", [False, True])
def test_a_full_segment_that_pins_a_replicated_log_is_moved(
    trims_prefix: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "PINNED_BYTES", 1000)

    async def test() -> None:
        scene = Scene(trims_prefix=trims_prefix)
        await scene.publish(300)
        stuck, scene.queue = scene.queue, scene.bench.queue("other")
        await scene.publish(3000)
        await scene.consume(3000)
        answers: list[str] = []
        scene.maintenance.snapshot_now(answers.append)
        await until(lambda: answers and scene.maintenance.stage is Stage.IDLE)
        for _ in range(4):
            await scene.later(CALM_MS + CHECK_MS)
            await until(lambda: scene.maintenance.stage is Stage.IDLE)
        first = [name for name in scene.names(".log") if name.startswith("0000000000000000.")]
        assert len(first) == (not trims_prefix)
        assert stuck.ready == 300
        await scene.close()

    on_loop(test)


def test_a_segment_that_cannot_be_emptied_is_not_tried_over_and_over(caplog: pytest.LogCaptureFixture) -> None:
    """Not even if the journal counted its live messages wrongly."""

    def rounds() -> int:
        return sum("compaction of" in record.getMessage() for record in caplog.records)

    async def snapshot(scene: Scene) -> None:
        answers: list[str] = []
        scene.maintenance.snapshot_now(answers.append)
        await until(lambda: answers and scene.maintenance.stage is Stage.IDLE)

    async def check(scene: Scene, times: int) -> None:
        for _ in range(times):
            await scene.later(CALM_MS + CHECK_MS)
            await until(lambda: scene.maintenance.stage is Stage.IDLE)

    async def test() -> None:
        caplog.set_level(logging.INFO, "escrowmq.journal")
        scene = Scene(ratio=0.5)
        await scene.publish(3000)
        scene.bench.journal.retain(100, 20)
        await scene.consume(1100)
        await snapshot(scene)
        await check(scene, 3)
        (left,) = [s.live for s in scene.bench.journal.sparse_segments(0.5)]
        assert left == 20
        assert rounds() == 1
        await check(scene, 5)
        turns = scene.bench.turns.count
        await asyncio.sleep(0)
        assert rounds() == 1
        assert scene.bench.turns.count - turns <= 2, "nothing keeps the loop busy"
        scene.bench.journal.release(100, 5)
        await check(scene, 3)
        assert rounds() == 2, "some of it has died"
        await snapshot(scene)
        await check(scene, 3)
        assert rounds() == 3, "a snapshot later it may go better"
        await scene.close()
        assert scene.restarted_ready() == 1900

    on_loop(test)


def test_compaction_leaves_the_loop_to_others_between_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relocation, "STEP_COST", 1000)

    async def test() -> None:
        scene = Scene(ratio=0.0)
        await scene.publish(3000)
        await scene.consume(900)
        answers: list[str] = []
        scene.maintenance.snapshot_now(answers.append)
        await until(lambda: answers and scene.maintenance.stage is Stage.IDLE)
        scene.maintenance.snapshot_now(answers.append, compact=True)
        seen = 0
        while scene.maintenance.stage is Stage.COMPACTION:
            await scene.publish(100)
            await scene.consume(50)
            seen += 1
        assert seen > 1
        await until(lambda: len(answers) == 2)
        assert answers == ["", ""]
        await scene.close()
        assert scene.restarted_ready() == 2100 + 50 * seen

    on_loop(test)


def test_compaction_can_be_asked_for() -> None:
    async def test() -> None:
        scene = Scene(ratio=0.0)
        await scene.publish(3000)
        await scene.consume(900)
        answers: list[str] = []
        scene.maintenance.snapshot_now(answers.append)
        await until(lambda: answers and scene.maintenance.stage is Stage.IDLE)
        scene.maintenance.snapshot_now(answers.append, compact=True)
        await until(lambda: len(answers) == 2)
        assert answers == ["", ""]
        assert not scene.bench.journal.sparse_segments(1.0)
        await scene.close()
        assert scene.restarted_ready() == 2100

    on_loop(test)


def test_the_last_snapshot_leaves_nothing_to_replay() -> None:
    async def test() -> None:
        scene = Scene()
        await scene.publish(200)
        await scene.bench.turns.synced()
        assert await scene.maintenance.rest() == ""
        assert scene.bench.journal.snapshot_lsn == scene.bench.journal.end_lsn
        await scene.close()
        bench = Bench(scene.bench.storage)
        assert bench.journal.recovery.log_records == 0
        bench.turns.stop()
        assert scene.restarted_ready() == 200

    on_loop(test)


def test_segments_that_die_with_the_last_snapshot_are_deleted_after_the_next_start() -> None:
    """A record about them after the last snapshot would have to be replayed."""

    async def test() -> None:
        scene = Scene()
        await scene.publish(4000)
        await scene.consume(4000)
        segments = len(scene.names(".log"))
        assert await scene.maintenance.rest() == ""
        assert scene.bench.journal.snapshot_lsn == scene.bench.journal.end_lsn
        assert len(scene.names(".log")) == segments
        await scene.close()
        again = Scene(scene.bench.storage)
        assert again.bench.journal.recovery.log_records == 0
        await again.later(CHECK_MS)
        await until(lambda: len(again.names(".log")) <= 2)
        await again.close()
        assert again.restarted_ready() == 0

    on_loop(test)
