"""Fixtures for tests with real clients."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator

import pytest

HERE = "tests/integration/"  # paths would take a second for all tests of the repository


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # pika leaves the sockets of its own loop behind when a connection is refused.
    for item in items:
        if item.nodeid.startswith(HERE):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"))


@pytest.fixture(autouse=True)
def _left_behind() -> Iterator[None]:
    """Collect the remains of a refused pika connection here, so that no later test does."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
