"""The programs of docs/guides/order-and-points.md work as printed, with a real PostgreSQL and the unmodified client."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import blocks
from tests.interop.rocketmq.brokers import RocketmqPorts
from tests.unit.sources import ROOT
from tests.xa.postgres import PostgreSQL, needs_postgresql

GUIDE = ROOT / "docs" / "guides" / "order-and-points.md"
CREATE = re.compile(r"`escrowmq (topic\s+create\s[^`]*) --data-dir\s+data`")
PRINT = re.compile(r"^\s*print\(.*\)  # (.+)$", re.MULTILINE)


@needs_postgresql
@pytest.mark.interop
@pytest.mark.slow
@pytest.mark.rule("HALF-2", "HALF-4", "HALF-5")
def test_orders_and_shipments_agree_although_a_program_dies_at_each_step(tmp_path: Path) -> None:
    text = "\n".join(block.text for block in blocks(GUIDE, "py"))
    create = CREATE.search(GUIDE.read_text(encoding="utf-8"))
    assert create is not None
    ports, program = RocketmqPorts(), tmp_path / "guide.py"
    with ports.broker(tmp_path) as broker, PostgreSQL(tmp_path) as server:
        command = [sys.executable, "-m", "escrowmq", *create[1].split(), "--data-dir", str(broker.data_dir)]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        own = text.replace("127.0.0.1:8081", f"127.0.0.1:{ports.grpc}")
        program.write_text(own.replace("postgresql://localhost/shop", server.url("shop")), encoding="utf-8")
        done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, f"{done.stderr}\n{broker.log()}"
        with server.connect("shop") as shop:
            created = shop.execute("SELECT id, item FROM orders WHERE state = 'created' ORDER BY id").fetchall()
            assert shop.execute("SELECT * FROM shipments ORDER BY order_id").fetchall() == created
    assert done.stdout.splitlines() == PRINT.findall(text)
