"""One stream of HTTP/2: a request and its response.

A stream is OPEN until the client has ended its request; then it is HALF_CLOSED until the response is complete. Then it
is forgotten: a number that is not in the connection's table and not above the highest one belongs to a closed stream.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import NamedTuple


class StreamState(Enum):
    """The states of a stream that is not idle and not closed."""

    OPEN = "open"
    HALF_CLOSED = "half-closed"


class Unsent(NamedTuple):
    """A part of a response. DATA waits for the windows; header blocks only for the parts before them."""

    block: bytes
    is_data: bool
    ends: bool
    after: int


class Stream:
    """The state of one stream."""

    __slots__ = ("announced", "call", "number", "receive_window", "send_window", "state", "unsent")

    def __init__(self, number: int, send_window: int, receive_window: int) -> None:
        self.number = number
        self.state = StreamState.OPEN
        self.send_window = send_window
        self.receive_window = receive_window
        self.unsent: deque[Unsent] = deque()
        self.announced: int | None = None
        """Octets of the body that the request has announced and that have not arrived; None if it announces nothing."""
        self.call: object = None
        """Whatever the handler keeps with the stream."""
