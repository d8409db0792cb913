"""Dispositions that wait to be sent, joined into ranges of consecutive delivery-ids with the same state."""

from __future__ import annotations

from typing import Any, Final

from escrowmq.wire.amqp10.codec import hot
from escrowmq.wire.amqp10.codec.composite import encode_composite
from escrowmq.wire.amqp10.codec.states import ACCEPTED, RELEASED, Accepted, Released

NO_STATE: Final = b"\x40"
_SERIAL: Final = 0xFFFFFFFF


def encoded(state: Any) -> bytes:
    """Return a delivery state in wire format."""
    kind = type(state)
    if kind is Accepted:
        return ACCEPTED
    if kind is Released:
        return RELEASED
    return NO_STATE if state is None else encode_composite(state)


class Dispositions:
    """The dispositions of one role in one session."""

    __slots__ = ("_first", "_key", "_last", "_ready", "_role")

    def __init__(self, role: bool) -> None:
        self._role = role
        self._first = self._last = 0
        self._key: tuple[bool, bytes] | None = None
        self._ready: list[bytes] = []

    def add(self, id: int, settled: bool, state: bytes) -> None:
        """Add one delivery, which extends the current range if it can."""
        key = (settled, state)
        if self._key == key and id == (self._last + 1) & _SERIAL:
            self._last = id
            return
        self._close()
        self._first = self._last = id
        self._key = key

    def take(self) -> list[bytes]:
        """Return the performatives to send, and forget them."""
        self._close()
        ready, self._ready = self._ready, []
        return ready

    def clear(self) -> None:
        """Forget everything: the session is gone."""
        self._key = None
        self._ready.clear()

    @property
    def waiting(self) -> bool:
        """Whether anything waits to be sent."""
        return self._key is not None or bool(self._ready)

    def _close(self) -> None:
        if self._key is not None:
            settled, state = self._key
            self._ready.append(hot.encode_disposition(self._role, self._first, self._last, settled, state))
            self._key = None
