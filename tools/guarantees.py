"""Write docs/guarantees.md, which lists the tests of each rule of docs/semantics.md.

`python -m tools.guarantees` writes the page. With `--check` it fails if the page is stale, if a rule of a finished area
has no test, or if a test names a rule that does not exist.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.pages import ROOT, asked_to_check, is_fresh

_FINISHED = re.compile(r"^finished: (?P<areas>[A-Z ]+)$", re.MULTILINE)
_AREA = re.compile(r"^## (?P<area>[A-Z]+): (?P<title>.+)$")
_RULE = re.compile(r"^\| (?P<id>[A-Z]+-\d+) \| (?P<text>.+) \|$")


@dataclass(frozen=True)
class Area:
    """One chapter of docs/semantics.md. `rules` maps each ID to its text, in the order of the page."""

    name: str
    title: str
    finished: bool
    rules: dict[str, str]


@dataclass(frozen=True, order=True)
class Mark:
    """One `@pytest.mark.rule(...)`: the rule, the file relative to the repository's root, and the marked test."""

    rule: str
    path: str
    test: str
    line: int

    @property
    def kind(self) -> str:
        """The test's folder in tests/: unit, property, conformance, simulation, interop …"""
        return Path(self.path).parts[1]


class MarkError(Exception):
    """An invalid mark: its ID is not a literal, or it is on something that pytest does not collect."""


def read_rules(page: str) -> list[Area]:
    """Parse the areas of docs/semantics.md, in order. Raises ValueError if the page is inconsistent."""
    front = _FINISHED.search(page)
    finished = set(front["areas"].split()) if front else set()
    areas: list[Area] = []
    for line in page.splitlines():
        if heading := _AREA.match(line):
            areas.append(Area(heading["area"], heading["title"], heading["area"] in finished, {}))
        elif row := _RULE.match(line):
            if not areas or row["id"].split("-")[0] != areas[-1].name or row["id"] in areas[-1].rules:
                raise ValueError(f"docs/semantics.md: {row['id']} occurs twice or is under the wrong heading")
            areas[-1].rules[row["id"]] = row["text"]
    if unknown := finished - {area.name for area in areas}:
        raise ValueError(f"docs/semantics.md: finished areas without a chapter: {' '.join(sorted(unknown))}")
    return areas


def marks_in(source: str, path: str) -> Iterator[Mark]:
    """Yield every rule mark in a test file: in decorators, `pytestmark` and `pytest.param(marks=…)`."""
    yield from _walk(ast.parse(source), path, "")


def _walk(node: ast.AST, path: str, owner: str) -> Iterator[Mark]:
    if isinstance(node, ast.Call) and _is_rule_mark(node.func):
        if not node.args:
            raise MarkError(f"{path}:{node.lineno}: a rule mark without a rule")
        if owner and not owner.rpartition(".")[2].lower().startswith("test"):
            raise MarkError(f"{path}:{node.lineno}: {owner} has a rule mark but is not a test")
        for argument in node.args:
            if not (isinstance(argument, ast.Constant) and isinstance(argument.value, str)):
                raise MarkError(f"{path}:{node.lineno}: the rule of a mark must be a literal string")
            yield Mark(argument.value, path, owner or "(all)", node.lineno)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        owner = f"{owner}.{node.name}" if owner else node.name
    for child in ast.iter_child_nodes(node):
        yield from _walk(child, path, owner)


def _is_rule_mark(function: ast.expr) -> bool:
    return (
        isinstance(function, ast.Attribute)
        and function.attr == "rule"
        and isinstance(function.value, ast.Attribute)
        and function.value.attr == "mark"
    )


def collect_marks(root: Path) -> list[Mark]:
    """Return all rule marks below `root`/tests."""
    found = set[Mark]()
    for file in sorted((root / "tests").rglob("test_*.py")):
        found.update(marks_in(file.read_text(encoding="utf-8"), file.relative_to(root).as_posix()))
    return sorted(found)


def problems(areas: list[Area], marks: list[Mark]) -> list[str]:
    """Return the reasons for `--check` to fail, one line each."""
    known = {rule for area in areas for rule in area.rules}
    tested = {mark.rule for mark in marks}
    lines = [
        f"{mark.path}:{mark.line}: {mark.test} names rule {mark.rule}, which docs/semantics.md does not have"
        for mark in marks
        if mark.rule not in known
    ]
    for area in areas:
        missing = [rule for rule in area.rules if rule not in tested]
        if area.finished and missing:
            lines.append(f"area {area.name} is finished, but no test shows {', '.join(missing)}")
    return lines


def render(areas: list[Area], marks: list[Mark]) -> str:
    """Return the page docs/guarantees.md."""
    by_rule: dict[str, list[Mark]] = {rule: [] for area in areas for rule in area.rules}
    for mark in marks:
        by_rule.setdefault(mark.rule, []).append(mark)
    lines = [
        "# Guarantees",
        "",
        "This page lists the tests of each rule of [semantics.md](semantics.md). It is generated by `make docs` from",
        "the `@pytest.mark.rule` marks of the tests; do not edit it.",
        "",
        "| Area | Rules | With a test | State |",
        "|---|---:|---:|---|",
    ]
    for area in areas:
        shown = sum(bool(by_rule[rule]) for rule in area.rules)
        gaps = shown < len(area.rules)
        state = ("**gaps**" if gaps else "finished") if area.finished else "begun" if shown else "planned"
        lines.append(f"| {area.name}: {area.title} | {len(area.rules)} | {shown} | {state} |")
    for area in areas:
        lines += [
            "",
            f"## {area.name}: {area.title}",
            "",
            "| Rule | State | Tests | Text |",
            "|---|---|---|---|",
        ]
        for rule, text in area.rules.items():
            kinds = Counter(mark.kind for mark in by_rule[rule])
            state = "tested" if kinds else "**no test**" if area.finished else "planned"
            counts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "–"
            lines.append(f"| {rule} | {state} | {counts} | {text} |")
        if any(by_rule[rule] for rule in area.rules):
            lines += ["", "Tests:", ""]
            lines += [f"- {rule}: {_links(by_rule[rule])}" for rule in area.rules if by_rule[rule]]
    return "\n".join(lines) + "\n"


def _links(marks: list[Mark]) -> str:
    files: dict[str, list[str]] = {}
    for mark in marks:
        names = files.setdefault(mark.path, [])
        if mark.test not in names:
            names.append(mark.test)
    return "; ".join(
        f"[{path.removeprefix('tests/')}](../{path}) " + ", ".join(f"`{name}`" for name in names)
        for path, names in files.items()
    )


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Write or check the page. Returns the exit code."""
    check = asked_to_check(arguments, "Write docs/guarantees.md from the rule marks of the tests.")
    page = root / "docs" / "guarantees.md"
    try:
        areas = read_rules((root / "docs" / "semantics.md").read_text(encoding="utf-8"))
        marks = collect_marks(root)
    except (ValueError, MarkError) as error:
        print(f"guarantees: {error}", file=sys.stderr)
        return 1
    text = render(areas, marks)
    if not check:
        page.write_text(text, encoding="utf-8")
        print(f"{page.relative_to(root)}: {len(marks)} marks on {len({mark.rule for mark in marks})} rules")
        return 0
    found = problems(areas, marks)
    for line in found:
        print(f"guarantees: {line}", file=sys.stderr)
    return 0 if is_fresh(page, text) and not found else 1


if __name__ == "__main__":
    sys.exit(main())
