"""Names that at most one connection may hold at a time, such as the ids of clients."""

from __future__ import annotations


class Claims:
    """The names that are held, for each virtual host."""

    __slots__ = ("_holders",)

    def __init__(self) -> None:
        self._holders: dict[tuple[str, str], object] = {}

    def take(self, vhost: str, name: str, holder: object) -> bool:
        """Let `holder` hold `name`. Return False if another one holds it."""
        return self._holders.setdefault((vhost, name), holder) is holder

    def release(self, vhost: str, name: str, holder: object) -> None:
        """Free `name`, if `holder` holds it."""
        if self._holders.get((vhost, name)) is holder:
            del self._holders[vhost, name]
