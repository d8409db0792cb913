"""Tells whether work that is done again and again leaves something in memory."""

from __future__ import annotations

import gc
from collections.abc import Callable

from escrowmq.server.resources import resident_bytes

ROUNDS = 3
"""What is left is left in each round, while other threads and the allocator may take memory in one of them."""


def assert_nothing_is_left(once: Callable[[], None], times: int, objects: int, size: int) -> None:
    """Fail if `times` calls leave more than `objects` objects, or in each of some rounds `size` bytes or more.

    The collector must be off.
    """
    for _ in range(20):
        once()
    left: list[int] = []
    while len(left) < ROUNDS and (not left or left[-1] >= size):
        before, resident = len(gc.get_objects()), resident_bytes()
        for _ in range(times):
            once()
        assert len(gc.get_objects()) - before < objects
        left.append(resident_bytes() - resident)
    assert left[-1] < size, f"bytes left in each round: {left}"
