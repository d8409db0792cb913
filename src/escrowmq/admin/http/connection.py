"""A connection of the HTTP process: uvicorn's, with a limit for the time in which a request has to arrive.

uvicorn limits only the time between an answer and the next request. Without this limit, clients that send nothing, or
a request without an end, could occupy all of `http.connections` without a login.
"""

from __future__ import annotations

import asyncio
from typing import Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS: Final = 20.0
"""The time from the beginning of a connection, or from the first octets of a later request, to a request's end."""
_INCOMPLETE: Final = (h11.IDLE, h11.SEND_BODY)


class TimedProtocol(H11Protocol):
    """Ends a connection whose request is not complete in time."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Await the first request."""
        super().connection_made(transport)
        self._await_request()

    def data_received(self, data: bytes) -> None:
        """Take octets of a request."""
        super().data_received(data)
        if self.conn.their_state not in _INCOMPLETE:
            self._stop_waiting()
        elif self._deadline is None:
            self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the connection."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _await_request(self) -> None:
        self._deadline = self.loop.call_later(REQUEST_SECONDS, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
