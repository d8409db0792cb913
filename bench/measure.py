"""Take one measurement: run the load tool against a broker, and observe the broker and the disk during the run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.brokers import Broker

_LIMIT = 1800.0
_KEPT = ("published", "confirmed", "consumed", "seconds", "rates", "latency_us", "answer_us", "cpu_seconds_per_million")


class MeasureError(Exception):
    """A measurement failed. The message is one line."""


@dataclass(slots=True)
class Measurement:
    """The figures of one measurement by name, and further details."""

    figures: dict[str, float]
    details: dict[str, Any] = field(default_factory=dict)


def perf(broker: Broker, *options: str) -> dict[str, Any]:
    """Run `escrowmq perf` in a separate process. Return its JSON document and the broker's resource usage.

    Raises MeasureError with the tool's message.
    """
    journal_before = broker.journal_counters()
    cpu_before = broker.cpu_seconds()
    command = [sys.executable, "-m", "escrowmq.perf", "--url", broker.url, "--json", *options]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT, check=False)
    except subprocess.TimeoutExpired:
        raise MeasureError(f"the load tool did not end within {_LIMIT:g} s") from None
    if done.returncode:
        raise MeasureError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit {done.returncode}")
    result: dict[str, Any] = json.loads(done.stdout)
    result["broker_cpu_seconds"] = round(broker.cpu_seconds() - cpu_before, 2)
    journal_after = broker.journal_counters()
    if journal_before is not None and journal_after is not None:
        result["journal"] = {name: journal_after[name] - journal_before[name] for name in journal_after}
    return result


def details(result: dict[str, Any]) -> dict[str, Any]:
    """Return the parts of the tool's document worth keeping, and commits per sync if the broker counts syncs."""
    kept = {name: result[name] for name in (*_KEPT, "broker_cpu_seconds", "journal") if result.get(name) is not None}
    syncs = result.get("journal", {}).get("syncs", 0)
    if syncs and result["confirmed"]:
        kept["commits_per_sync"] = round(result["confirmed"] / (result["workload"]["tx_size"] or 1) / syncs, 1)
    return kept


def sync_rate(directory: Path, seconds: float = 1.0) -> float:
    """Return how many times per second this disk can append 4 kB and sync it, one append after the other."""
    path = directory / "sync-rate"
    block = os.urandom(4096)
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    try:
        number = 0
        begin = time.monotonic()
        while (elapsed := time.monotonic() - begin) < seconds:
            os.write(descriptor, block)
            os.fdatasync(descriptor)
            number += 1
    finally:
        os.close(descriptor)
        path.unlink()
    return number / elapsed


def machine(directory: Path) -> dict[str, Any]:
    """Return a description of the machine."""
    cpus = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    memory = next((line.split()[1] for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), "0")
    return {
        "cpu": cpus[0] if cpus else "unknown",
        "cores": os.cpu_count(),
        "memory_mb": int(memory) // 1024,
        "kernel": os.uname().release,
        "filesystem": _filesystem(directory),
        "python": sys.version.split()[0],
    }


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _filesystem(directory: Path) -> str:
    """Return the type of the file system of a directory: that of the longest mount point above it."""
    mounts = [fields for line in _lines("/proc/mounts") if len(fields := line.split()) > 2]
    resolved = directory.resolve()
    above = [fields for fields in mounts if resolved.is_relative_to(fields[1])]
    return max(above, key=lambda fields: len(fields[1]))[2] if above else "unknown"
