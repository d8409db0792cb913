"""A Celery worker in a separate process receives tasks from the broker, and sends results through it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from celery import group

from tests.broker import BrokerProcess, wait_until
from tests.interop.celery_workers import PATIENCE, worker

pytestmark = pytest.mark.interop


def test_tasks_are_executed_and_return_results(
    broker: BrokerProcess, name: str, app: Callable[..., Any], tmp_path: Path
) -> None:
    tasks = app(broker, name)
    with worker(broker, name, tmp_path / "worker.log"):
        assert tasks.add.delay(2, 3).get(PATIENCE) == 5
        assert tasks.flaky.delay().get(PATIENCE) == 2
        with pytest.raises(ValueError, match="as asked"):
            tasks.fail.delay().get(PATIENCE)
        results = [tasks.add.apply_async((i, 1), priority=i % 5) for i in range(100)]
        assert [result.get(PATIENCE) for result in results] == list(range(1, 101))
        assert tasks.add.apply_async((1, 1), countdown=0.2).get(PATIENCE) == 2
        assert group(tasks.add.s(i, i) for i in range(10)).apply_async().get(PATIENCE) == list(range(0, 20, 2))


def test_delayed_tasks_of_quorum_queues_are_executed(
    own_broker: Callable[[str], BrokerProcess],
    name: str,
    app: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ESCROWMQ_TEST_QUEUE_TYPE", "quorum")
    broker = own_broker("")
    tasks = app(broker, name)
    with worker(broker, name, tmp_path / "worker.log"):
        assert tasks.add.delay(2, 3).get(PATIENCE) == 5
        begun = time.monotonic()
        results = [tasks.add.apply_async((i, 0), countdown=i) for i in (2, 1, 0)]
        assert [result.get(PATIENCE) for result in results] == [2, 1, 0]
        assert time.monotonic() - begun >= 2
        with tasks.app.connection_for_read() as connection:
            delayed = connection.channel().queue_declare("celery_delayed_27", passive=True)
        assert delayed.message_count == 0


def test_remote_control_reaches_the_worker(
    broker: BrokerProcess, name: str, app: Callable[..., Any], tmp_path: Path
) -> None:
    """Inspection and control use fanout exchanges, reply queues, and a mailbox for each worker."""
    tasks = app(broker, name)
    with worker(broker, name, tmp_path / "worker.log") as process:
        control = tasks.app.control

        def said(answers: list[dict[str, Any]]) -> list[Any]:
            return [reply for answer in answers for reply in answer.values()]

        # Celery waits for answers only until the timeout, and having none is not an error, so the test retries.
        wait_until(lambda: {"ok": "pong"} in said(control.ping(timeout=2)), PATIENCE, "pong")
        wait_until(
            lambda: process.pid in [stats["pid"] for stats in said([control.inspect(timeout=2).stats() or {}])],
            PATIENCE,
            "the worker's statistics",
        )
        wait_until(
            lambda: (
                [name]
                in [
                    [queue["name"] for queue in queues]
                    for queues in said([control.inspect(timeout=2).active_queues() or {}])
                ]
            ),
            PATIENCE,
            "the worker's queues",
        )


def test_tasks_of_a_killed_worker_are_executed_by_another(
    broker: BrokerProcess, name: str, app: Callable[..., Any], tmp_path: Path
) -> None:
    tasks = app(broker, name)
    notes = tmp_path / "notes"
    with worker(broker, name, tmp_path / "first.log") as first:
        for i in range(300):
            tasks.note.delay(str(notes), str(i))
        wait_until(lambda: notes.exists() and len(lines(notes)) > 20, PATIENCE, "the first tasks")
        first.kill()
        first.wait()
        with worker(broker, name, tmp_path / "second.log"):
            wait_until(lambda: len(set(lines(notes))) == 300, PATIENCE, "the others")
        first.returncode = 0  # the kill was intended


def test_a_worker_survives_a_broker_that_is_killed(
    own_broker: Callable[[str], BrokerProcess], name: str, app: Callable[..., Any], tmp_path: Path
) -> None:
    """Every accepted task is executed, although the broker is killed twice with SIGKILL."""
    broker = own_broker("")
    tasks = app(broker, name)
    notes, log = tmp_path / "notes", tmp_path / "worker.log"
    with worker(broker, name, log):
        accepted: list[str] = []
        for _ in range(3):
            for _ in range(100):
                line = str(len(accepted))
                tasks.note.apply_async((str(notes), line), retry=True, retry_policy={"max_retries": None})
                accepted.append(line)
            wait_until(lambda: notes.exists() and len(lines(notes)) > len(accepted) - 80, PATIENCE, "some of them")
            if len(accepted) < 300:
                broker.kill()
                broker.start()
        wait_until(lambda: set(accepted) <= set(lines(notes)), PATIENCE, f"all of them; {log.read_text()}")


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()
