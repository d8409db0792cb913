"""Clocks that a test sets."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.replica_kill import clock

HOUR = 3600
WAIT = """
import time
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
begun, admin = time.monotonic(), AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
try:
    admin.list_topics(timeout=0.5)
except KafkaException:
    print(time.time(), time.monotonic() - begun)
"""


@pytest.mark.skipif(bool(clock.why_not()), reason=clock.why_not())
def test_a_clock_that_is_ahead_makes_no_wait_of_a_client_longer(tmp_path: Path) -> None:
    ahead = clock.Clock(clock.compiled(tmp_path), tmp_path / "clock")
    ahead.set(HOUR)
    before = (tmp_path / "clock").stat().st_mtime
    done = subprocess.run(
        [sys.executable, "-c", WAIT],
        env={**os.environ, **ahead.environment},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=120,
    )
    now, waited = map(float, done.stdout.split())
    assert now > before + HOUR - 60
    assert waited < 60
