"""The pages are correct: links have targets, make targets and command lines exist, locks cover all dependencies."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import click
import pytest

from escrowmq.cli.program import cli
from tests.unit.sources import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\[[^\]]*\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]*))?\)")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
MAKE = re.compile(r"(?:^|`)make ([a-z]+)", re.MULTILINE)


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ +(.*)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def command_lines(page: Path) -> list[str]:
    """Return the `escrowmq …` lines of the page's shell blocks, continued lines joined."""
    lines = []
    for language, block in FENCE.findall(text_of(page)):
        if language in ("sh", "bash", "console"):
            joined = block.replace("\\\n", " ")
            lines += [line.removeprefix("$ ") for line in joined.splitlines()]
    return [line for line in lines if line.startswith("escrowmq ")]


def parse(line: str) -> None:
    """Parse a command line as the program would, without running it. Raises click.UsageError."""
    words = shlex.split(line, comments=True)
    words = words[1 : next((i for i, word in enumerate(words) if word in ("|", ">", "&", "2>")), len(words))]
    command: click.Command | None = cli
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        command = command.get_command(click.Context(command), words.pop(0))
    if command is None:
        raise click.UsageError(f"no such command: {line}")
    if not isinstance(command, click.Group) and "--help" not in words:
        command.make_context("escrowmq", words)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in LINK.findall(text_of(page)):
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), f"{page.name} links to {target}"
        assert not anchor or file.suffix != ".md" or anchor in anchors(file), f"{page.name} links to {target}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", text_of(ROOT / "Makefile"), re.MULTILINE))
    assert set(MAKE.findall(text_of(page))) <= targets


def test_a_missing_python_is_reported(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    done = subprocess.run(
        ["make", "-C", str(tmp_path), "PYTHON=/nonexistent", "setup"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("/nonexistent was not found; say which Python with: make PYTHON=")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_command_lines_are_accepted(page: Path) -> None:
    for line in command_lines(page):
        parse(line)


@pytest.mark.parametrize("line", ["escrowmq nope", "escrowmq serve --nope", "escrowmq serve --log-level loud"])
def test_a_wrong_command_line_is_found(line: str) -> None:
    with pytest.raises(click.UsageError):
        parse(line)


def test_a_right_command_line_is_accepted() -> None:
    parse("escrowmq serve --data-dir DIR --listen 127.0.0.1:0 2> log &  # in the background")


def test_the_locks_cover_every_dependency() -> None:
    project = tomllib.loads(text_of(ROOT / "pyproject.toml"))
    groups = [entry for group in project["dependency-groups"].values() for entry in group if isinstance(entry, str)]
    wanted = {
        re.split(r"[<>=!~;\[ ]", entry, maxsplit=1)[0].lower() for entry in project["project"]["dependencies"] + groups
    }
    locked = {
        match.lower()
        for lock in (ROOT / "requirements").glob("*.lock")
        for match in re.findall(r"^([A-Za-z0-9_.-]+)==", text_of(lock), re.MULTILINE)
    }
    assert wanted <= locked, f"run make lock: {wanted - locked}"


def drawn() -> set[str]:
    """Return the folders and files in the picture on the page about architecture, as paths."""
    page = ROOT / "docs" / "internals" / "architecture.md"
    (picture,) = (block for language, block in FENCE.findall(text_of(page)) if language == "text")
    parents: list[str] = []
    paths = set()
    for line in picture.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        parents[depth:] = [line.split()[0]]
        paths.add("".join(parents))
    return paths


def test_the_picture_in_the_page_on_architecture_shows_every_folder() -> None:
    packages = {f"{file.parent.relative_to(ROOT).as_posix()}/" for file in (ROOT / "src").rglob("__init__.py")}
    assert {path for path in drawn() if path.endswith("/")} == packages


def test_the_picture_in_the_page_on_architecture_shows_only_files_that_exist() -> None:
    assert [path for path in drawn() if not (ROOT / path).exists()] == []
