"""Guides and decisions are linked from the page that lists them."""

from __future__ import annotations

import re

import pytest

from tests.unit.sources import ROOT

DOCS = ROOT / "docs"
LINKED = {
    "guides": DOCS / "README.md",
    "internals": DOCS / "README.md",
    "adr": DOCS / "adr" / "README.md",
}


@pytest.mark.parametrize("folder", LINKED)
def test_every_page_is_listed(folder: str) -> None:
    index = LINKED[folder]
    links = {
        (index.parent / target).resolve() for target in re.findall(r"\]\(([^)#]+)", index.read_text(encoding="utf-8"))
    }
    assert {page for page in (DOCS / folder).glob("*.md") if page != index} <= links


def test_decisions_are_numbered_without_gaps() -> None:
    numbers = [int(page.name[:4]) for page in sorted((DOCS / "adr").glob("[0-9]*.md"))]
    assert numbers == list(range(1, len(numbers) + 1))
