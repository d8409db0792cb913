"""A stand-in for a queue with the attributes that routing needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(eq=False)
class NamedQueue:
    """Has a name and a durability, and is compared and hashed by identity."""

    name: str
    durable: bool = True
    admits: Callable[..., bool] | None = None
