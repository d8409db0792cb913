"""The benchmark of blocks publishes every row."""

from __future__ import annotations

import pytest

from bench.block_path import KINDS, measure


@pytest.mark.parametrize("kind", KINDS)
def test_every_row_arrives(kind: str) -> None:
    assert measure(kind, 3000, None) > 0
