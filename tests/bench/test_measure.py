"""Measurements: the tool's results, the number of commits that share a sync, the speed of the disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.brokers import Broker, EscrowMQ
from bench.measure import MeasureError, details, machine, perf, sync_rate
from escrowmq.perf.errors import PerfError


def result(tx_size: int, syncs: int) -> dict[str, Any]:
    return {
        "published": 1000,
        "confirmed": 1000,
        "consumed": 1000,
        "seconds": 1.0,
        "rates": {},
        "latency_us": None,
        "answer_us": None,
        "cpu_seconds_per_million": 1.0,
        "workload": {"tx_size": tx_size},
        "broker_cpu_seconds": 1.0,
        "journal": {"syncs": syncs},
    }


@pytest.mark.parametrize(("tx_size", "syncs", "expected"), [(0, 10, 100.0), (100, 10, 1.0), (0, 0, None)])
def test_commits_per_sync(tx_size: int, syncs: int, expected: float | None) -> None:
    assert details(result(tx_size, syncs)).get("commits_per_sync") == expected


def test_the_tool_s_message_is_the_error(tmp_path: Path) -> None:
    broker: Broker = EscrowMQ(tmp_path)
    broker.port = 1
    with pytest.raises(MeasureError, match=r"cannot connect to the broker at 127\.0\.0\.1:1"):
        perf(broker)


def test_the_disk_is_asked_and_left_clean(tmp_path: Path) -> None:
    assert sync_rate(tmp_path, seconds=0.05) > 0
    assert not list(tmp_path.iterdir())


def test_the_machine_is_described(tmp_path: Path) -> None:
    facts = machine(tmp_path)
    assert facts["cores"] >= 1
    assert facts["memory_mb"] > 0
    assert facts["filesystem"] != "unknown"


def test_the_processor_time_of_threads_is_counted_finely(tmp_path: Path) -> None:
    broker = EscrowMQ(tmp_path)
    broker.start()
    try:
        broker.settle()
        before = broker.thread_seconds()
        with pytest.raises(PerfError):
            broker.depth("missing")
        assert 0 < broker.thread_seconds() - before < 5
    finally:
        broker.stop()
