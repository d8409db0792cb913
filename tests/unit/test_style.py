"""Properties of the repository's text that no linter checks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.unit.sources import ROOT, modules, statements
from tests.unit.style_exceptions import LONG_FUNCTIONS, SHARED_CLASS_NAMES

FOLDERS = ("src", "tests", "tools", "bench")
LONGEST = 600
LONGEST_FUNCTION = 70
LEFT_OVER = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b")


def python_files() -> list[Path]:
    return sorted(
        path
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        if not {"node_modules", "__pycache__"}.intersection(path.parts)
    )


class Outline(NamedTuple):
    """What a file tells when it is parsed."""

    has_docstring: bool
    long_functions: dict[str, int]


@cache
def outlines() -> dict[Path, Outline]:
    """Parse every file once. The trees of all files together would take hundreds of megabytes."""
    found = {}
    for path in python_files():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found[path] = Outline(bool(ast.get_docstring(tree)), dict(long_functions(tree)))
    return found


def too_long(path: Path) -> bool:
    generated = path.name == "spec.py" or path.name.endswith("_pb2.py")
    return not generated and len(path.read_text(encoding="utf-8").splitlines()) > LONGEST


def names(paths: list[Path]) -> str:
    return "\n".join(str(path.relative_to(ROOT)) for path in paths)


def test_no_file_is_asking_to_be_split() -> None:
    found = [path for path in python_files() if too_long(path)]
    assert not found, f"these are longer than {LONGEST} lines:\n{names(found)}"


def test_nothing_is_left_for_later() -> None:
    found = [path for path in python_files() if LEFT_OVER.search(path.read_text(encoding="utf-8"))]
    assert not found, f"these contain a note about unfinished work:\n{names(found)}"


def test_every_module_has_a_docstring() -> None:
    found = [path for path, outline in outlines().items() if not outline.has_docstring]
    assert not found, f"these lack a docstring:\n{names(found)}"


def long_functions(tree: ast.AST, within: str = "") -> Iterator[tuple[str, int]]:
    """Yield name and length of each function of more than LONGEST_FUNCTION lines, signature and docstring included."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > LONGEST_FUNCTION:
                yield within + node.name, lines
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from long_functions(node, f"{within}{node.name}.")
        elif not isinstance(node, ast.expr):  # expressions are most of a tree, and contain no function with a name
            yield from long_functions(node, within)


def classes_by_name() -> dict[str, list[str]]:
    """Return, for each class name, the packages (or modules) below `escrowmq` that define such a class. The classes of
    a generated `spec.py` have the names of their specification.
    """
    found: dict[str, list[str]] = {}
    for module in modules().values():
        if module.path.name == "spec.py":
            continue
        for node in statements(module.tree):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(module.layer)
    return found


def test_functions_have_at_most_70_lines() -> None:
    found = {
        f"{path.relative_to(ROOT).as_posix()}:{name}": lines
        for path, outline in outlines().items()
        for name, lines in outline.long_functions.items()
    }
    too_long = [f"{name}: {lines} lines" for name, lines in found.items() if name not in LONG_FUNCTIONS]
    assert not too_long, "split these, or list them in style_exceptions.py:\n" + "\n".join(too_long)
    unused = LONG_FUNCTIONS.keys() - found.keys()
    assert not unused, f"no longer too long; remove them from style_exceptions.py: {sorted(unused)}"


def test_no_two_classes_have_one_name() -> None:
    shared = {name: " ".join(sorted(where)) for name, where in classes_by_name().items() if len(where) > 1}
    listed = {name: each.packages for name, each in SHARED_CLASS_NAMES.items()}
    new = [f"{name}: {where}" for name, where in sorted(shared.items()) if listed.get(name) != where]
    assert not new, "rename one of them, or bring style_exceptions.py up to date:\n" + "\n".join(new)
    unused = listed.keys() - shared.keys()
    assert not unused, f"no longer shared; remove them from style_exceptions.py: {sorted(unused)}"


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


@pytest.mark.parametrize(("body", "expected"), [(69, []), (70, [("C.f", 71)])])
def test_length_of_a_function_counts_its_signature(body: int, expected: list[tuple[str, int]]) -> None:
    text = "class C:\n    @property\n    def f(self):\n" + "        pass\n" * body
    assert list(long_functions(ast.parse(text))) == expected
