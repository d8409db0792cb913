"""Celery workers as processes of their own, which perform the tasks of `celery_app`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.broker import BrokerProcess, wait_until
from tests.unit.sources import ROOT

PATIENCE = 60


@contextmanager
def worker(broker: BrokerProcess, queue: str, log: Path, *args: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a worker, and wait until it is ready. It is stopped cleanly at the end."""
    environment = {**os.environ, "ESCROWMQ_TEST_URL": broker.url, "ESCROWMQ_TEST_QUEUE": queue}
    command = [
        *(sys.executable, "-m", "celery", "-A", "tests.interop.celery_app", "worker"),
        *("--pool", "threads", "--concurrency", "4", "--loglevel", "INFO", "--hostname", f"{os.getpid()}@%h"),
        *args,
    ]
    with log.open("ab") as output:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=output)
    try:
        wait_until(lambda: b" ready." in log.read_bytes() or process.poll() is not None, PATIENCE, "a worker")
        assert process.poll() is None, log.read_text()
        yield process
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
