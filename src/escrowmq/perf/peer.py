"""A connection under load: non-blocking, read and written by the loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from struct import unpack_from
from typing import NoReturn

from escrowmq.perf import frames
from escrowmq.perf.connection import Connection, raise_if_closed
from escrowmq.perf.errors import PerfError
from escrowmq.perf.totals import Totals

RECEIVE_SIZE = 512 * 1024


class Peer(ABC):
    """What producers and consumers have in common: buffers, and the frames that end or hold up a run."""

    def __init__(self, connection: Connection, totals: Totals, label: str) -> None:
        self.connection = connection
        self.socket = connection.socket
        self.totals = totals
        self.label = label
        self.wants_write = False
        self.blocked: str | None = None
        """The broker's reason while it has blocked this connection."""
        self.now = 0
        self._unsent = memoryview(b"")
        self._buffer = bytearray(RECEIVE_SIZE)
        self._view = memoryview(self._buffer)
        self._filled = 0

    @abstractmethod
    def parse(self, data: memoryview) -> int:
        """Take what is whole in `data`, return how many bytes that was."""

    @abstractmethod
    def pump(self, now: int) -> None:
        """Send what can be sent, and set `wants_write` if there is more."""

    def on_readable(self, now: int) -> None:
        """Read once. PerfError when the broker has gone or has closed."""
        try:
            received = self.socket.recv_into(self._view[self._filled :])
        except BlockingIOError:
            return
        except OSError as error:
            raise PerfError(f"lost the broker ({self.label}): {error.strerror or error}") from None
        if not received:
            raise PerfError(f"the broker closed the connection ({self.label}) without a word")
        self.now = now
        filled = self._filled + received
        used = self.parse(self._view[:filled])
        rest = filled - used
        if rest == len(self._buffer):
            self._buffer = self._buffer + bytes(len(self._buffer))
            self._view = memoryview(self._buffer)
        elif used and rest:
            self._view[:rest] = self._view[used:filled]
        self._filled = rest

    def _send(self, data: memoryview) -> bool:
        """Send; what does not fit is kept and goes first. Returns whether everything has gone."""
        try:
            sent = self.socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._raise_lost(error)
        self._unsent = data[sent:]
        self.wants_write = sent < len(data)
        return not self.wants_write

    def _raise_lost(self, error: OSError) -> NoReturn:
        """A broker that closes tells why in what it sent before: read that first."""
        self.on_readable(self.now)
        raise PerfError(f"lost the broker ({self.label}): {error.strerror or error}") from None

    def on_frame(self, kind: int, payload: memoryview) -> None:
        """A frame that the fast path does not know."""
        if kind != frames.METHOD:
            return
        method = unpack_from(">I", payload)[0]
        raise_if_closed(method, payload)
        if method == frames.CONNECTION_BLOCKED:
            self.blocked = bytes(payload[5 : 5 + payload[4]]).decode("utf-8", "replace")
        elif method == frames.CONNECTION_UNBLOCKED:
            self.blocked = None
        elif method == frames.BASIC_CANCEL:
            raise PerfError(f"the broker cancelled the consumer ({self.label})")
        elif method == frames.BASIC_RETURN:
            self.totals.returned += 1
