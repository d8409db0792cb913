"""A connection under load: non-blocking, read and written by the loop. The protocols build their peers on it."""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from typing import NoReturn

from escrowmq.perf.errors import PerfError
from escrowmq.perf.totals import Totals

RECEIVE_SIZE = 512 * 1024


class Peer(ABC):
    """The common part of producers and consumers: the buffers of a socket."""

    def __init__(self, connected: socket.socket, totals: Totals, label: str) -> None:
        self.socket = connected
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
    def parse(self, data: bytearray, end: int) -> int:
        """Take the complete units in the first `end` bytes of `data`. Returns the number of bytes taken.

        The rest must be shorter than `RECEIVE_SIZE`.
        """

    @abstractmethod
    def pump(self, now: int) -> None:
        """Send everything that can be sent, and set `wants_write` if there is more."""

    def on_readable(self, now: int) -> None:
        """Read once. Raises PerfError if the broker cannot be reached or has closed the connection."""
        try:
            received = self.socket.recv_into(self._view[self._filled :])
        except BlockingIOError:
            return
        except OSError as error:
            raise PerfError(f"lost the connection to the broker ({self.label}): {error.strerror or error}") from None
        if not received:
            raise PerfError(f"the broker closed the connection ({self.label}) without giving a reason")
        self.now = now
        filled = self._filled + received
        used = self.parse(self._buffer, filled)
        rest = filled - used
        if used and rest:
            self._view[:rest] = self._view[used:filled]
        self._filled = rest

    def _append(self, data: bytes, now: int) -> None:
        """Send these bytes after those that are not sent yet."""
        self._unsent = memoryview(b"".join((self._unsent, data)))
        self.pump(now)

    def _send(self, data: memoryview) -> bool:
        """Send `data`. Bytes that do not fit are kept and go first next time. Returns whether everything was sent."""
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
        """Raise PerfError. A closing broker sends the reason before it closes, so that is read first."""
        self.on_readable(self.now)
        raise PerfError(f"lost the connection to the broker ({self.label}): {error.strerror or error}") from None


class Producer(Peer):
    """A connection that publishes, until its load is done or it is stopped."""

    @property
    @abstractmethod
    def finished(self) -> bool:
        """Whether everything is sent and answered."""

    @abstractmethod
    def wake(self, now: int) -> None:
        """Send the messages that are due."""

    @abstractmethod
    def stop(self) -> None:
        """Publish no more messages."""

    @abstractmethod
    def due_at(self) -> int | None:
        """When the next paced message is due (ns); None if the producer does not wait for time alone."""

    @abstractmethod
    def set_pace(self, rate: float, starts: list[int]) -> None:
        """Publish `rate` messages/s on each channel, the first one at its time (ns) of `starts`."""


class Consumer(Peer):
    """A connection that consumes."""

    @property
    @abstractmethod
    def subscribed(self) -> bool:
        """Whether the broker has accepted all that `start` asked for."""

    @abstractmethod
    def start(self, now: int) -> None:
        """Ask for messages."""

    @abstractmethod
    def finish(self, now: int) -> None:
        """Acknowledge the remaining deliveries."""
