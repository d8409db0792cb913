"""Publisher confirms (DUR-1). A channel confirms the publishes of a turn together, once the log has them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from escrowmq.wire.amqp091 import codes

if TYPE_CHECKING:
    from escrowmq.core.counters import Traffic
    from escrowmq.wire.amqp091.connection import Connection

_ACK: Final = struct.Struct(">BHIHHQBB")
_ACK_SIZE: Final = 13
_BASIC: Final = 60
_ACKED: Final = 80
_NACKED: Final = 120


class Confirms:
    """The confirms of one channel. Sequence numbers count its publishes in confirm mode."""

    __slots__ = ("_after", "_confirmed", "_connection", "_number", "_published", "_traffic", "closed")

    def __init__(self, connection: Connection, number: int, traffic: Traffic) -> None:
        self._connection = connection
        self._traffic = traffic
        self._number = number
        self._published = 0
        self._confirmed = 0
        self._after = 0
        self.closed = False

    def add(self, count: int, lsn: int) -> None:
        """Confirm `count` more publishes when the log is synced up to `lsn`."""
        self._published += count
        self._after = max(self._after, lsn)
        self._connection.confirm_later(self, lsn)

    def add_some(self, count: int, refused: tuple[int, ...], lsn: int) -> None:
        """Do `add`, but refuse those of the `count` publishes that `refused` numbers."""
        first = self._published + 1
        for i in refused:
            accepted = first + i - 1 - self._published
            if accepted > 0:
                self.add(accepted, lsn)
            self.send()
            self._published = self._confirmed = first + i
            self._traffic.answered(0, 1)
            self._put(_NACKED, self._published, 0, 0)
        rest = first + count - 1 - self._published
        if rest:
            self.add(rest, lsn)

    def send(self) -> None:
        """Confirm the publishes of this turn once the log has them."""
        count = self._published - self._confirmed
        if count and not self.closed:
            self._traffic.answered(count)
            self._put(_ACKED, self._published, 1 if count > 1 else 0, self._after)
        self._confirmed = self._published

    def _put(self, method: int, tag: int, bits: int, after: int) -> None:
        number = self._number
        frame = _ACK.pack(codes.FRAME_METHOD, number, _ACK_SIZE, _BASIC, method, tag, bits, codes.FRAME_END)
        self._connection.put(number, frame, after)
