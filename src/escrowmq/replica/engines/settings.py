"""Settings that a topic or stream must have, so that the engine keeps what it acknowledged."""

from __future__ import annotations

from typing import NamedTuple


class WrongSetting(NamedTuple):
    """A setting whose value is not the needed one."""

    where: str
    """`the topic orders`, for example."""
    name: str
    found: str
    needed: str

    def __str__(self) -> str:
        return f"{self.where} has {self.name} = {self.found}, and replication needs {self.needed}"


def exactly(where: str, name: str, found: object, needed: object) -> list[WrongSetting]:
    """Return a fault if the value is another one."""
    return [] if found == needed else [WrongSetting(where, name, _shown(found), _shown(needed))]


def at_least(where: str, name: str, found: int, needed: int, *, unlimited: bool = False) -> list[WrongSetting]:
    """Return a fault if the value is smaller. With `unlimited`, negative values stand for no limit."""
    if found >= needed or (unlimited and found < 0):
        return []
    return [WrongSetting(where, name, str(found), f"{needed} or more")]


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
