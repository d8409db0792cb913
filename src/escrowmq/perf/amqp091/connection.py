"""A connection for setting up and taking down a load. The load itself belongs to `peer`."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from struct import unpack_from
from types import TracebackType
from typing import Self

from escrowmq.perf.amqp091 import frames
from escrowmq.perf.errors import ClosedByBroker, PerfError, RefusedLogin
from escrowmq.perf.url import Target

_ACCESS_REFUSED = 403

_CALLS_AT_ONCE = 100
"""The most requests that are sent before their answers are read: both fit into the buffers of the sockets."""


class Connection:
    """An open AMQP 0-9-1 connection on a blocking socket: one request, one answer."""

    def __init__(self, target: Target, name: str, timeout: float) -> None:
        """Connect, authenticate, open the virtual host. `timeout` (s) applies to each step.

        Raises PerfError with the reason: no broker answers, it does not speak AMQP, or it refuses the login.
        """
        self.target = target
        self.frame_max = frames.FRAME_MAX
        self.channel_max = 0
        self.product = ""
        self.version = ""
        self._received = b""
        try:
            self.socket = socket.create_connection((target.host, target.port), timeout)
        except OSError as error:
            raise PerfError(f"cannot connect to the broker at {target.address}: {error.strerror or error}") from None
        try:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open(name)
        except BaseException:
            self.socket.close()
            raise

    def _open(self, name: str) -> None:
        target = self.target
        start = self.call(0, frames.PROTOCOL_HEADER, frames.CONNECTION_START)
        self.product, self.version = _server_identity(start)
        try:
            tune = self.call(0, frames.start_ok(target.user, target.password, name), frames.CONNECTION_TUNE)
        except ClosedByBroker as error:
            if error.code == _ACCESS_REFUSED:
                raise RefusedLogin(target.address, target.user, "403 ACCESS_REFUSED") from None
            raise
        channel_max, frame_max = unpack_from(">HI", tune)
        self.channel_max = channel_max or 65535
        self.frame_max = min(frame_max or frames.FRAME_MAX, frames.FRAME_MAX)
        tune_ok = frames.tune_ok(self.channel_max, self.frame_max)
        self.call(0, tune_ok + frames.connection_open(target.vhost), frames.CONNECTION_OPEN_OK)

    def call(self, channel: int, request: bytes, answer: int) -> bytes:
        """Send a request and wait for the method `answer`. Returns that method's arguments.

        Raises PerfError if the broker closes the channel or the connection instead, or does not answer in time.
        """
        return self.calls(channel, [request], answer)[0]

    def calls(self, channel: int, requests: Sequence[bytes], answer: int) -> list[bytes]:
        """Send requests without waiting for each answer, then collect as many methods `answer`. Otherwise like
        `call`.
        """
        found: list[bytes] = []
        try:
            for first in range(0, len(requests), _CALLS_AT_ONCE):
                some = requests[first : first + _CALLS_AT_ONCE]
                self.socket.sendall(b"".join(some))
                found.extend(self._answer(channel, answer) for _ in some)
            return found
        except TimeoutError:
            raise PerfError(
                f"the broker at {self.target.address} did not answer within {self.socket.gettimeout():g} s"
            ) from None
        except OSError as error:
            raise PerfError(
                f"lost the connection to the broker at {self.target.address}: {error.strerror or error}"
            ) from None

    def _answer(self, channel: int, answer: int) -> bytes:
        while True:
            kind, on, payload = self._next_frame()
            if kind != frames.METHOD:
                continue
            method = unpack_from(">I", payload)[0]
            if on == channel and method == answer:
                return payload[4:]
            raise_if_closed(method, payload)

    def _next_frame(self) -> tuple[int, int, bytes]:
        head = self._take(frames.FRAME_HEAD_SIZE)
        if head[:4] == b"AMQP":
            raise PerfError(f"the server at {self.target.address} does not speak AMQP 0-9-1; it offered {head[4:]!r}")
        kind, channel, size = frames.FRAME_HEAD.unpack(head)
        if kind not in (frames.METHOD, frames.HEADER, frames.BODY, frames.HEARTBEAT) or size > 1 << 20:
            raise PerfError(f"the server at {self.target.address} does not speak AMQP 0-9-1; it sent {head!r}")
        payload = self._take(size + 1)
        return kind, channel, payload[:-1]

    def _take(self, size: int) -> bytes:
        while len(self._received) < size:
            data = self.socket.recv(65536)
            if not data:
                raise PerfError(
                    f"the broker at {self.target.address} closed the connection without giving a reason "
                    "(wrong user, password or virtual host?)"
                )
            self._received += data
        taken, self._received = self._received[:size], self._received[size:]
        return taken

    def close(self) -> None:
        """Close the connection properly if the broker still answers, and close the socket in any case."""
        try:
            self.call(0, frames.connection_close(), frames.CONNECTION_CLOSE_OK)
        except PerfError:
            pass  # the measurement is over, so the error no longer matters
        finally:
            self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def raise_if_closed(method: int, payload: bytes | memoryview) -> None:
    """Raise ClosedByBroker with code and text if the method is connection.close or channel.close."""
    if method in (frames.CONNECTION_CLOSE, frames.CHANNEL_CLOSE):
        code = unpack_from(">H", payload, 4)[0]
        text = bytes(payload[7 : 7 + payload[6]]).decode("utf-8", "replace")
        what = "connection" if method == frames.CONNECTION_CLOSE else "channel"
        raise ClosedByBroker(f"the broker closed the {what}: {code} {text}", code)


def _server_identity(start: bytes) -> tuple[str, str]:
    """Product and version from the arguments of connection.start; empty if the broker does not name them."""
    (size,) = unpack_from(">I", start, 2)
    properties = start[6 : 6 + size]
    return _string_field(properties, "product"), _string_field(properties, "version")


def _string_field(properties: bytes, name: str) -> str:
    head = frames.shortstr(name) + b"S"
    at = properties.find(head) + len(head)
    if at < len(head) or len(properties) - at < 4:
        return ""
    (length,) = unpack_from(">I", properties, at)
    return properties[at + 4 : at + 4 + length].decode("utf-8", "replace")
