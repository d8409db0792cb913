"""The Python examples and commands of README and guides work, and print the documented output."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker import BrokerProcess, running_broker
from tests.docs.pages import GUIDES, blocks, name, with_blocks
from tests.unit.sources import ROOT

URL = "amqp://guest:guest@127.0.0.1:5672/"
COMMAND = re.compile(r"(?:echo .*\| )?escrowmq (.*)")
PRINT = re.compile(r"^\s*print\(.*\)  # (.+)$", re.MULTILINE)
# These run until they are stopped, or for a long time. Another test checks that all commands are accepted.
NOT_RUN = ("serve", "perf", "inspect /")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with running_broker(tmp_path) as broker:
        yield broker


def program(page: Path, broker: BrokerProcess) -> str:
    """Return all Python blocks of a page as one program with the page's line numbers."""
    lines: list[str] = []
    for block in blocks(page, "python"):
        lines += [""] * (block.line - 1 - len(lines))
        lines += block.text.splitlines()
    text = "\n".join(lines)
    assert URL in text, "the page connects to some other broker"
    return text.replace(URL, broker.url)


@pytest.mark.parametrize("page", with_blocks(GUIDES, "python"), ids=name)
def test_python_examples_print_the_documented_output(page: Path, broker: BrokerProcess, tmp_path: Path) -> None:
    text = program(page, broker)
    file = tmp_path / "example.py"
    file.write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(file)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{name(page)}\n{done.stderr}\n{broker.log()}"
    assert done.stdout.splitlines() == PRINT.findall(text), name(page)


def commands(page: Path) -> list[str]:
    """Return the `escrowmq` commands of a page that end by themselves, with their input."""
    lines = [line for block in blocks(page, "sh") for line in block.text.replace("\\\n", " ").splitlines()]
    return [line for line in lines if (found := COMMAND.match(line)) and not found[1].startswith(NOT_RUN)]


@pytest.mark.parametrize("page", [page for page in GUIDES if commands(page)], ids=name)
def test_commands_run(page: Path, broker: BrokerProcess, tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for line in commands(page):
        assert "--data-dir data" in line or "escrowmq inspect data" in line, f"{name(page)}: {line}"
        done = subprocess.run(
            ["bash", "-euc", line.replace(URL, shlex.quote(broker.url))],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{name(page)}: {line}\n{done.stdout}\n{done.stderr}"


def test_the_example_of_the_readme_has_fifteen_lines() -> None:
    example = blocks(ROOT / "README.md", "python")[0]
    assert len([line for line in example.text.splitlines() if line.strip()]) == 15
