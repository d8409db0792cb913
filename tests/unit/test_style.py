"""Properties of the text of the repository that no linter checks."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.unit.sources import ROOT

FOLDERS = ("src", "tests", "tools", "bench")
LONGEST = 600
LEFT_OVER = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b")


def python_files() -> list[Path]:
    return sorted(
        path
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        if not {"node_modules", "__pycache__"}.intersection(path.parts)
    )


def too_long(path: Path) -> bool:
    return path.name != "spec.py" and len(path.read_text(encoding="utf-8").splitlines()) > LONGEST


def names(paths: list[Path]) -> str:
    return "\n".join(str(path.relative_to(ROOT)) for path in paths)


def test_no_file_is_asking_to_be_split() -> None:
    found = [path for path in python_files() if too_long(path)]
    assert not found, f"longer than {LONGEST} lines:\n{names(found)}"


def test_nothing_is_left_for_later() -> None:
    found = [path for path in python_files() if LEFT_OVER.search(path.read_text(encoding="utf-8"))]
    assert not found, f"says that something is not done:\n{names(found)}"


def test_every_module_says_what_it_is() -> None:
    found = [path for path in python_files() if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))]
    assert not found, f"no docstring:\n{names(found)}"


@pytest.mark.parametrize(
    ("lines", "name", "expected"), [(601, "a.py", True), (600, "a.py", False), (601, "spec.py", False)]
)
def test_length_is_counted_in_lines(tmp_path: Path, lines: int, name: str, expected: bool) -> None:
    path = tmp_path / name
    path.write_text("x\n" * lines)
    assert too_long(path) is expected


def test_left_overs_are_words_of_their_own() -> None:
    assert LEFT_OVER.search("# " + "TO" + "DO: later")
    assert not LEFT_OVER.search("MASTODON xxx")
