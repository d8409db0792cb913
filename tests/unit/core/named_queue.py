"""A queue as routing sees it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(eq=False)
class NamedQueue:
    """Has a name, and may be durable; cannot be compared or hashed by its content."""

    name: str
    durable: bool = True
