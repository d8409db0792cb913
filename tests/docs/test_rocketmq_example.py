"""The Python examples for RocketMQ work with the unmodified client, and print the documented output."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import blocks, name
from tests.interop.rocketmq.brokers import RocketmqPorts
from tests.unit.sources import ROOT

PAGES = [ROOT / "README.md", ROOT / "docs" / "guides" / "rocketmq.md"]
CREATE = re.compile(r"escrowmq (topic create \w+ --type \w+) --data-dir data")
PRINT = re.compile(r"^\s*print\(.*\)  # (.+)$", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_example_prints_the_documented_output(page: Path, tmp_path: Path) -> None:
    (text,) = [block.text for block in blocks(page, "py") if "import rocketmq" in block.text]
    create = CREATE.search(page.read_text(encoding="utf-8"))
    assert create is not None
    ports = RocketmqPorts()
    file = tmp_path / "example.py"
    file.write_text(text.replace("127.0.0.1:8081", f"127.0.0.1:{ports.grpc}"), encoding="utf-8")
    with ports.broker(tmp_path) as broker:
        command = [sys.executable, "-m", "escrowmq", *create[1].split(), "--data-dir", str(broker.data_dir)]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, f"{done.stderr}\n{broker.log()}"
    assert done.stdout.splitlines() == PRINT.findall(text)
