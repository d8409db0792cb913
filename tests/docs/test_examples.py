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
LINK = re.compile(r"\]\(([\w/-]+\.md)")
README, INDEX = ROOT / "README.md", ROOT / "docs" / "README.md"
EXACTLY_ONCE = ROOT / "docs" / "guides" / "exactly-once.md"
# These run until they are stopped, or for a long time, or name a message that the reader has. Another test checks that
# all commands are accepted.
NOT_RUN = ("serve", "perf", "inspect /", "audit data --message")


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


def output(folder: Path, *command: str) -> str:
    """Run a Python program in a folder, and return its output."""
    whole = [sys.executable, "-W", "error", *command]
    done = subprocess.run(whole, cwd=folder, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
    return done.stdout


def check_examples(page: Path, broker: BrokerProcess, folder: Path) -> None:
    """Run the Python blocks of a page, and compare what they print with the page."""
    text = program(page, broker)
    file = folder / f"example-{page.stem}.py"
    file.write_text(text, encoding="utf-8")
    assert output(folder, str(file)).splitlines() == PRINT.findall(text), name(page)


def reading_order() -> list[Path]:
    """Return the pages with Python blocks in the order in which README and then the index of the pages name them."""
    section = README.read_text(encoding="utf-8").partition("### Where to read on\n")[2].partition("\n## ")[0]
    named = [README]
    for page, text in ((README, section), (INDEX, INDEX.read_text(encoding="utf-8"))):
        named += [(page.parent / target).resolve() for target in LINK.findall(text)]
    return with_blocks([page for page in dict.fromkeys(named) if page in GUIDES], "python")


@pytest.mark.parametrize("page", with_blocks(GUIDES, "python"), ids=name)
def test_python_examples_print_the_documented_output(page: Path, broker: BrokerProcess, tmp_path: Path) -> None:
    check_examples(page, broker, tmp_path)


@pytest.mark.slow
def test_the_pages_can_be_followed_one_after_the_other_on_one_broker(broker: BrokerProcess, tmp_path: Path) -> None:
    pages = reading_order()
    assert sorted(pages) == with_blocks(GUIDES, "python")
    for page in pages:
        check_examples(page, broker, tmp_path)


def test_the_program_of_exactly_once_runs_after_its_guide(broker: BrokerProcess, tmp_path: Path) -> None:
    for page in (README, EXACTLY_ONCE):
        check_examples(page, broker, tmp_path)
    file = str(ROOT / "examples" / "exactly_once.py")
    options = ("--broker", broker.url, "--orders", "20")
    assert output(tmp_path, file, "send", *options) == "all 20 orders were sent\n"
    assert output(tmp_path, file, "receive", *options) == "all 20 orders were shipped\n"


@pytest.mark.parametrize("part", ["send", "receive"])
def test_the_program_of_exactly_once_ends_if_its_login_is_refused(
    part: str, broker: BrokerProcess, tmp_path: Path
) -> None:
    url = broker.url.replace("guest:guest", "guest:wrong")
    command = [sys.executable, str(ROOT / "examples" / "exactly_once.py"), part, "--broker", url]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 1
    assert "ACCESS_REFUSED" in done.stderr
    assert done.stderr.count("logfile") == 1


def test_the_program_of_exactly_once_can_be_started_again_as_its_guide_says(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    for _ in range(2):
        check_examples(EXACTLY_ONCE, broker, tmp_path)
        for database in ("shop.db", "warehouse.db"):
            (tmp_path / database).unlink()


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
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, f"{name(page)}: {line}\n{done.stdout}\n{done.stderr}"


def test_the_example_of_the_readme_has_fifteen_lines() -> None:
    example = blocks(README, "python")[0]
    assert len([line for line in example.text.splitlines() if line.strip()]) == 15
