"""Runs simulated histories with a planted bug."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock


@contextmanager
def planted(patches: Mapping[tuple[Any, str], object]) -> Iterator[None]:
    """Run with a bug, given as patches by class or module and attribute. Brokers that exist already do not have all of
    it.
    """
    started = [mock.patch.object(owner, name, new) for (owner, name), new in patches.items()]
    for patch in started:
        patch.start()
    try:
        yield
    finally:
        for patch in started:
            patch.stop()
