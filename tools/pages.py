"""Writes generated pages of docs/, or compares them with the existing ones."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def asked_to_check(arguments: list[str] | None, description: str) -> bool:
    """Return whether the command line (by default that of this process) has `--check`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--check", action="store_true", help="compare instead of writing; exit with 1 on any difference"
    )
    return bool(parser.parse_args(arguments).check)


def is_fresh(page: Path, text: str) -> bool:
    """Return whether the page exists with this text. Prints a line on stderr if not."""
    if page.exists() and page.read_text(encoding="utf-8") == text:
        return True
    print(f"docs/{page.name} is stale; run: make docs", file=sys.stderr)
    return False


def write_or_check(name: str, render: Callable[[], str], arguments: list[str] | None, root: Path = ROOT) -> int:
    """Write docs/`name`, or with `--check` compare it. Returns the exit code."""
    check = asked_to_check(arguments, f"Write docs/{name}.")
    page = root / "docs" / name
    text = render()
    if check:
        return 0 if is_fresh(page, text) else 1
    page.write_text(text, encoding="utf-8")
    return 0
