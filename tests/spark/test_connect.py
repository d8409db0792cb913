"""Source and sink work in sessions of Spark Connect (PIPE-6)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from escrowmq.client import connect
from escrowmq.client.escrow import Escrow
from tests.broker import running_broker
from tests.spark.cluster import ConnectServer
from tests.spark.desk import PERSISTENT, numbered

ROOT = Path(__file__).parents[2]
COUNT = 1500


@pytest.mark.rule("PIPE-6")
@pytest.mark.timeout(600)
def test_messages_pass_exactly_once_over_spark_connect(tmp_path: Path) -> None:
    with (
        running_broker(tmp_path) as broker,
        ConnectServer(tmp_path) as server,
        connect(broker.url, heartbeat_thread=True) as connection,
    ):
        channel = connection.channel()
        for name in ("in", "between", "out"):
            channel.queue_declare(name, durable=True)
        channel.confirm_delivery()
        channel.publish_many("", "in", numbered(COUNT), PERSISTENT)
        url = tmp_path / "url"
        url.write_text(broker.url)
        command = [sys.executable, "-m", "tests.spark.connect_job", server.remote, str(url), str(tmp_path)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr[-4000:]
        assert done.stdout.splitlines()[-1] == f"counted={COUNT}"
        escrow = Escrow(connection)
        assert escrow.hold("in", "job").settled == escrow.hold("between", "job").settled == COUNT + 1
        assert escrow.hold("out", "count").settled == COUNT + 1
        assert connection.tpc_recover() == []
