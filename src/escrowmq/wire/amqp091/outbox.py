"""What waits to be sent: at once, or when the log is on disk far enough."""

from __future__ import annotations

from collections import deque
from typing import Final

_CONNECTION: Final = 0


class Outbox:
    """A connection's output. Order is kept within a channel; what a channel holds back does not delay the others.

    `put` with an LSN holds the bytes until `release` is called with that LSN or a later one, and whatever follows on
    the same channel behind them. Channel 0 speaks for the connection: it waits for all channels.
    """

    __slots__ = ("_held", "_holders", "_ready", "_synced", "size")

    def __init__(self) -> None:
        self._ready: list[bytes] = []
        # What is held, in one line: a batch of the log releases it for all channels, so nobody waits for another's.
        self._held: deque[tuple[int, int, bytes]] = deque()
        self._holders: set[int] = set()
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
            last = held[-1][0]
            if after > last:
                last = after
            elif after <= self._synced and channel not in self._holders and channel != _CONNECTION:
                self._ready.append(data)
                return
            held.append((last, channel, data))
            self._holders.add(channel)
        elif after > self._synced:
            held.append((after, channel, data))
            self._holders.add(channel)
        else:
            self._ready.append(data)

    def put_now(self, data: bytes) -> None:
        """Send `data` at once: it speaks of the connection itself, and has no order with the rest."""
        self.size += len(data)
        self._ready.append(data)

    def release(self, synced: int) -> bool:
        """The log is on disk up to `synced`. True while something is still held."""
        self._synced = synced
        held, ready = self._held, self._ready
        while held and held[0][0] <= synced:
            ready.append(held.popleft()[2])
        self._holders = {channel for _, channel, _ in held} if held else set()
        return bool(held)

    def take(self) -> bytes:
        """Everything that can be sent now."""
        ready, self._ready = self._ready, []
        data = ready[0] if len(ready) == 1 else b"".join(ready)
        self.size -= len(data)
        return data
