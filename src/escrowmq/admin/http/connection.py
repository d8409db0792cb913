"""A connection of the HTTP process: uvicorn's, with a limit for the time in which a request has to arrive, and for
answers that the client does not read.

uvicorn limits only the time between an answer and the next request. Without these limits, clients that send nothing, or
a request without an end, could occupy all of `http.connections` without a login, and unread answers all memory.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any, ClassVar, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from escrowmq.admin.http.attempts import is_this_machine, network_of
from escrowmq.admin.http.headers import completed
from escrowmq.admin.http.unread import PIECE_BYTES, UNREAD_SECONDS, BoundedSending, UnreadAnswers

REQUEST_SECONDS: Final = 20.0
"""The time from the beginning of a connection, or from the first octets of a later request, to a request's end."""
_INCOMPLETE: Final = (h11.IDLE, h11.SEND_BODY)
_UNANSWERED: Final = (h11.IDLE, h11.SEND_RESPONSE)


class TimedProtocol(H11Protocol):
    """Ends a connection whose request is not complete in time, or whose answers are not read."""

    most: ClassVar[int] = 0
    """The number of connections at which a new one takes the place of the one whose request has been incomplete for the
    longest time; 0 for any number.
    """
    most_of_address: ClassVar[int] = 0
    """The number of connections from one address at the same time; 0 for any number. Addresses of this machine have no
    limit, since a proxy may run here.
    """
    _of_address: ClassVar[Counter[str]] = Counter()
    _awaited: ClassVar[dict[TimedProtocol, None]] = {}  # those whose request is incomplete, the oldest first
    unread: ClassVar[UnreadAnswers] = UnreadAnswers()
    _deadline: asyncio.TimerHandle | None = None
    _end: asyncio.TimerHandle | None = None
    _address = ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Await the first request."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(PIECE_BYTES)  # with TLS, half a mebibyte would be the default
        self.app = BoundedSending(self.app, self.unread, transport.abort)
        self._make_room()
        self._await_request()
        self._address = network_of(self.client[0]) if self.client else ""
        self._of_address[self._address] += 1
        if self.most_of_address and self._of_address[self._address] > self.most_of_address and not self._is_local():
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take octets of a request."""
        super().data_received(data)
        if self.conn.their_state not in _INCOMPLETE:
            self._stop_waiting()
        elif self._deadline is None:
            self._await_request()
        self._end_in_time()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, unless an answer has begun, and close the connection."""
        if self.conn.our_state not in _UNANSWERED or not getattr(self.cycle, "response_complete", True):
            self.transport.abort()
            return
        body = json.dumps({"error": "bad_request", "reason": msg}).encode()
        kind, size = (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))
        headers: Any = completed([kind, size, (b"connection", b"close")])
        for event in (
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def on_response_complete(self) -> None:
        """Go on after an answer."""
        super().on_response_complete()
        self._end_in_time()

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection of a client that asks for nothing more."""
        super().timeout_keep_alive_handler()
        self._end_in_time()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the connection."""
        self._stop_waiting()
        if self._end is not None:
            self._end.cancel()
        self._of_address[self._address] -= 1
        if not self._of_address[self._address]:
            del self._of_address[self._address]
        super().connection_lost(exc)

    def _make_room(self) -> None:
        if self.most and len(self.connections) >= self.most:
            oldest = next(iter(self._awaited), None)
            if oldest is not None:
                oldest._stop_waiting()
                oldest.transport.abort()
            elif len(self.connections) > 2 * self.most:  # the others are told with status 503
                self.transport.abort()

    def _is_local(self) -> bool:
        return is_this_machine(self._address)

    def _end_in_time(self) -> None:
        """Do not wait without end until a client has read the last answer before its connection is closed."""
        if self._end is None and self.transport.is_closing():
            self._end = self.loop.call_later(UNREAD_SECONDS, self.transport.abort)

    def _await_request(self) -> None:
        self._deadline = self.loop.call_later(REQUEST_SECONDS, self.transport.abort)
        self._awaited[self] = None

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
            self._awaited.pop(self, None)
