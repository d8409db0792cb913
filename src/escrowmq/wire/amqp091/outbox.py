"""What waits to be sent: at once, or when the log is on disk far enough."""

from __future__ import annotations

from collections import deque
from itertools import chain
from typing import Final

_CONNECTION: Final = 0


class Outbox:
    """A connection's output. Order is kept within a channel; what a channel holds back does not delay the others.

    `put` with an LSN holds the bytes until `release` is called with that LSN or a later one, and whatever follows on
    the same channel behind them. Channel 0 speaks for the connection: it waits for all channels.
    """

    __slots__ = ("_held", "_ready", "_synced", "size")

    def __init__(self) -> None:
        self._ready: list[bytes] = []
        self._held: dict[int, deque[tuple[int, bytes]]] = {}
        self._synced = 0
        self.size = 0

    @property
    def holding(self) -> bool:
        return bool(self._held)

    def put(self, channel: int, data: bytes, after: int = 0) -> None:
        """Send `data` on `channel` when the log is synced up to `after`."""
        self.size += len(data)
        held = self._held
        if held:
            if channel == 0:
                after = max(after, *(lsn for lsn, _ in chain.from_iterable(held.values())))
            elif channel in held:
                held[channel].append((after, data))
                return
        if after > self._synced:
            held.setdefault(channel, deque()).append((after, data))
            return
        self._ready.append(data)

    def put_now(self, data: bytes) -> None:
        """Send `data` at once: it speaks of the connection itself, and has no order with the rest."""
        self.size += len(data)
        self._ready.append(data)

    def release(self, synced: int) -> bool:
        """The log is on disk up to `synced`. True while something is still held."""
        self._synced = synced
        for channel in sorted(self._held, key=_CONNECTION.__eq__):  # 0 comes last
            held = self._held[channel]
            while held and held[0][0] <= synced:
                self._ready.append(held.popleft()[1])
            if not held:
                del self._held[channel]
        return bool(self._held)

    def take(self) -> bytes:
        """Everything that can be sent now."""
        ready, self._ready = self._ready, []
        data = ready[0] if len(ready) == 1 else b"".join(ready)
        self.size -= len(data)
        return data
