"""The dispositions that a session owes its peer, gathered into ranges until the end of the turn."""

from __future__ import annotations

from typing import Final

from escrowmq.wire.amqp10.codec.frames import frame
from escrowmq.wire.amqp10.codec.hot import encode_disposition

MASK: Final = 0xFFFFFFFF
"""Delivery numbers and delivery counts have 32 bits on the wire."""


class Answers:
    """Dispositions in ranges of delivery numbers.

    Equal answers to consecutive deliveries become one range. All answers of a turn wait for the same sync, since one
    sync of the log releases all of them.
    """

    __slots__ = ("_channel", "_ranges", "after")

    def __init__(self, channel: int) -> None:
        self._channel = channel
        self._ranges: list[list[int | bool | bytes]] = []  # role, settled, state, first, last
        self.after = 0
        """The LSN up to which the log must be synced before these answers are sent; 0 for none."""

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def add(self, role: bool, first: int, last: int, *, settled: bool, state: bytes, after: int = 0) -> None:
        """Answer the deliveries from `first` to `last` with the encoded `state`."""
        self.after = max(self.after, after)
        ranges = self._ranges
        if ranges:
            before = ranges[-1]
            if before[4] == first - 1 and before[2] == state and before[0] == role and before[1] == settled:
                before[4] = last
                return
        ranges.append([role, settled, state, first, last])

    def take(self) -> bytes:
        """Remove all answers, and return their frames."""
        ranges, self._ranges = self._ranges, []
        self.after = 0
        return b"".join(
            [
                frame(self._channel, encode_disposition(role, first & MASK, last & MASK, settled, state))  # type: ignore[arg-type,operator]
                for role, settled, state, first, last in ranges
            ]
        )
