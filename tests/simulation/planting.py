"""Runs simulated histories with a planted bug."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

from tests.simulation.history import Failure, MakeWorld, history
from tests.simulation.world import World


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


def is_found(
    patches: Mapping[tuple[Any, str], object], histories: int, first: int = 0, make_world: MakeWorld = World
) -> bool:
    """Return whether one of so many histories fails with a planted bug. The history `first` is tried first.

    Raises AssertionError if the bug can no longer be called like what it replaces, so that any history would fail.
    """
    with planted(patches):
        for seed in (first, *range(histories)):
            result = history(seed, make_world=make_world)
            if isinstance(result, Failure):
                assert not isinstance(result.error, TypeError), f"bring the planted bug up to date: {result.error}"
                return True
    return False
