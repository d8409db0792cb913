"""The source files, parsed once, for the tests that read the sources themselves."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src"


@dataclass(frozen=True)
class Module:
    """One Python file below src/, by its dotted name; a package goes by its `__init__.py`."""

    name: str
    path: Path

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, str(self.path))

    @property
    def layer(self) -> str:
        """`core`, `wire` …, or the name of a module directly in the package."""
        return self.name.split(".")[1] if "." in self.name else ""

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"


@cache
def modules() -> dict[str, Module]:
    """Return every module of the package by dotted name."""
    found = {}
    for path in sorted(SOURCES.rglob("*.py")):
        parts = path.relative_to(SOURCES).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = Module(name, path)
    return found


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield everything below a node except expressions, which are most of a tree, and contain no statements."""
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, ast.expr):
            yield node
            yield from statements(node)


def imports(module: Module) -> Iterator[tuple[int, str]]:
    """Line and full name of everything imported, also inside functions and under TYPE_CHECKING.

    `from a import b` yields `a.b`: whether `b` is a module or a name in one is for the caller.
    """
    for node in statements(module.tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = node.module or ""
            if node.level:
                up = node.level - 1 if module.is_package else node.level
                source = ".".join([*module.name.split(".")[: -up or None], *source.split(".")]).strip(".")
            yield from ((node.lineno, f"{source}.{alias.name}") for alias in node.names)
