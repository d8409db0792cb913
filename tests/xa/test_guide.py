"""The Python code of docs/guides/database-and-queue.md runs and prints the documented output."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.broker import running_broker
from tests.docs.pages import blocks
from tests.unit.sources import ROOT
from tests.xa.postgres import PostgreSQL, needs_postgresql

GUIDE = ROOT / "docs" / "guides" / "database-and-queue.md"


@needs_postgresql
def test_the_guide(tmp_path: Path) -> None:
    text = "\n".join(block.text for block in blocks(GUIDE, "py"))
    with running_broker(tmp_path) as broker, PostgreSQL(tmp_path) as server:
        program = tmp_path / "guide.py"
        program.write_text(
            text.replace("amqp://guest:guest@127.0.0.1:5672/", broker.url).replace(
                "postgresql://localhost/shop", server.url("shop")
            ),
            encoding="utf-8",
        )
        command = [sys.executable, "-W", "error", str(program)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == re.findall(r"^\s*print\(.*\)  # (.+)$", text, re.MULTILINE)
