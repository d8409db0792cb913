"""examples/order_transfer.py works as described, and `python -m escrowmq.xa` shows its log."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psycopg

from escrowmq.client import connect
from tests.broker import running_broker
from tests.unit.sources import ROOT
from tests.xa.postgres import PostgreSQL, needs_postgresql


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=ROOT,
    )


@needs_postgresql
def test_order_transfer(tmp_path: Path) -> None:
    log = tmp_path / "decisions.db"
    with running_broker(tmp_path) as broker, PostgreSQL(tmp_path) as server:
        options: list[str | Path] = ["--broker", broker.url, "--database", server.url("shop"), "--log", log]
        done = run(ROOT / "examples" / "order_transfer.py", *options, "--demo", "25")
        assert done.returncode == 0, done.stderr
        assert done.stdout == "25 orders processed, none waiting\n"
        assert run(ROOT / "examples" / "order_transfer.py", *options).stdout == "0 orders processed, none waiting\n"
        with connect(broker.url) as connection, connection.channel() as channel:
            counts = [channel.message_count(queue) for queue in ("orders", "shipments", "declined")]
        assert counts == [0, 25, 0]
        with psycopg.connect(server.url("shop")) as bank:
            assert bank.execute("SELECT balance FROM account").fetchone() == (1_000_000 - 250,)
        shown = run("-m", "escrowmq.xa", "list", log)
        assert shown.returncode == 0, shown.stderr
        assert shown.stdout.startswith("manager order-transfer, log ")
        assert shown.stdout.endswith("no unfinished decisions\n")
        participants = ["-p", f"broker={broker.url}", "-p", f"database={server.url('shop')}"]
        assert run("-m", "escrowmq.xa", "recover", log, *participants).stdout == "nothing was in doubt\n"
        broker.kill()
        failed = run("-m", "escrowmq.xa", "recover", log, *participants)
        assert failed.returncode == 1
        assert "not reached broker: " in failed.stdout
