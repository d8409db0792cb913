"""The output of a connection: sent at once, or when the log is on disk far enough. All protocols share it.

Each output belongs to a lane: a channel of AMQP 0-9-1, a session of AMQP 1.0, or a stream of HTTP/2. Order is kept
within a lane. An output that waits for the log holds back later outputs of its lane, but no other lane. Lane 0 belongs
to the connection as a whole, so its outputs wait for everything that was put into any lane before them.
"""

from __future__ import annotations

from collections import deque
from itertools import groupby
from typing import Final, Protocol, TypeAlias

CONNECTION: Final = 0
"""The lane of the connection as a whole."""
LARGE: Final = 32_768
"""Pieces of at least this many bytes are sent without a copy; joining smaller ones by copying is cheaper."""

Piece: TypeAlias = bytes | memoryview


class SyncedLog(Protocol):
    """The part of the log that an outbox needs."""

    @property
    def synced_lsn(self) -> int:
        """The LSN below which every byte is on disk."""
        ...


class Outbox:
    """The output of one connection, in lanes."""

    __slots__ = ("_held", "_holders", "_in_pieces", "_log", "_ready", "size")

    def __init__(self, log: SyncedLog) -> None:
        self._log = log
        self._ready: list[Piece] = []
        # All lanes share one queue: one sync of the log releases outputs of all of them, so no lane waits for another.
        self._held: deque[tuple[int, int, Piece]] = deque()
        self._holders: set[int] = set()
        self._in_pieces = False  # whether large pieces may be among the others
        self.size = 0
        """The bytes that were put and not taken yet."""

    @property
    def holding(self) -> bool:
        """Whether an output waits for the log."""
        return bool(self._held)

    def holds(self, lane: int) -> bool:
        """Whether an output of `lane` waits for the log."""
        return lane in self._holders

    def follow(self, lane: int, other: int) -> None:
        """Let the next output of `lane` come behind those that `other` has put. Call `put` for it at once."""
        if other in self._holders:
            self._holders.add(lane)

    def put(self, lane: int, data: Piece, after: int = 0) -> None:
        """Send `data` in `lane` when the log is synced up to `after`."""
        if after and after <= self._log.synced_lsn:
            after = 0  # it is synced already, and no further sync may ever come
        self.size += len(data)
        held = self._held
        if held:
            last = held[-1][0]
            if after > last:
                last = after
            elif not after and lane not in self._holders and lane != CONNECTION:
                self._ready.append(data)
                return
            held.append((last, lane, data))
            self._holders.add(lane)
        elif after:
            held.append((after, lane, data))
            self._holders.add(lane)
        else:
            self._ready.append(data)

    def put_pieces(self, lane: int, pieces: list[Piece], after: int = 0) -> None:
        """Send `pieces` in order, as `put` does. Pieces of at least `LARGE` bytes are not copied."""
        self._in_pieces = True
        for piece in pieces:
            self.put(lane, piece, after)

    def put_now(self, data: bytes) -> None:
        """Send `data` at once. It concerns the connection itself and needs no order with the lanes."""
        self.size += len(data)
        self._ready.append(data)

    def release(self, synced: int) -> bool:
        """Release outputs that waited for a sync up to `synced`. Return True while an output still waits."""
        held, ready = self._held, self._ready
        while held and held[0][0] <= synced:
            ready.append(held.popleft()[2])
        self._holders = {lane for _, lane, _ in held} if held else set()
        return bool(held)

    def take(self) -> list[Piece]:
        """Remove and return everything that can be sent now, joined into one piece unless it contains large pieces."""
        ready = self._ready
        if not ready:
            return []
        self._ready = []
        if self._in_pieces:
            self._in_pieces = bool(self._held)
            ready = gathered(ready)
            self.size -= sum(map(len, ready))
            return ready
        data = ready[0] if len(ready) == 1 else b"".join(ready)
        self.size -= len(data)
        return [data]


def gathered(pieces: list[Piece]) -> list[Piece]:
    """Return the same bytes, with neighbouring pieces of fewer than `LARGE` bytes joined."""
    result: list[Piece] = []
    for large, group in groupby(pieces, _is_large):
        if large:
            result += group
        else:
            result.append(b"".join(group))
    return result


def _is_large(piece: Piece) -> bool:
    return len(piece) >= LARGE
