"""Closes the files of standbys after each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.server.replica.standbys import closing


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Close the files of each test."""
    with closing():
        yield
