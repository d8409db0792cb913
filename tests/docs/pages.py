"""The pages, and the blocks of code in them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from tests.unit.sources import ROOT

GUIDES = sorted([ROOT / "README.md", *(ROOT / "docs" / "guides").glob("*.md")])
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block, and the line on which its text begins."""

    language: str
    text: str
    line: int


def blocks(page: Path, *languages: str) -> list[Block]:
    """Return the blocks of these languages, in order."""
    text = page.read_text(encoding="utf-8")
    found = [Block(match[1], match[2], text.count("\n", 0, match.start()) + 2) for match in _FENCE.finditer(text)]
    return [block for block in found if block.language in languages]


def with_blocks(pages: list[Path], *languages: str) -> list[Path]:
    """Return the pages that have such blocks."""
    return [page for page in pages if blocks(page, *languages)]


def name(page: Path) -> str:
    """Return the name of a page's test."""
    return page.relative_to(ROOT).as_posix()
