"""A connection to NATS that blocks its caller. An append on it takes half the time of one by the library of asyncio."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
import time
from typing import Any, Final

from escrowmq.replica.engines.address import EngineAddress
from escrowmq.replica.engines.nats_login import certified_name, connect_options, context
from escrowmq.replica.engines.nats_wire import (
    PING,
    PONG,
    NatsLine,
    NatsMessage,
    NatsParser,
    ServerInfo,
    WireError,
    connect,
    server_info,
    subscribe,
)

_READ_BYTES: Final = 1 << 16
_MOST_READS: Final = 64
"""How often a connection that is tended is read at most, so that no server can keep the thread."""
_CONNECT_SECONDS: Final = 2.0
"""How long each step may take: the connection to an address, the server's first line, and the login."""
_TURN_SECONDS: Final = 1
"""How long a call of the kernel may block. After such a time without a byte, the server is asked for a sign of life."""
_SILENT_TURNS: Final = 3
_OPTIONS: Final = {
    "verbose": False,
    "pedantic": False,
    "lang": "python3",
    "version": "1",
    "protocol": 1,
    "name": "escrowmq",
    "headers": True,
    "no_responders": True,
}


class NatsSocket:
    """One connection, with one subscription. One thread at a time uses it, and any thread may interrupt that one."""

    def __init__(self, address: EngineAddress, host: str, subscription: str) -> None:
        """Connect to a host with a port. Raises ConnectionError, also if the login is refused."""
        self.host = host
        self.most_bytes = 0
        """The largest message that the server accepts."""
        self.others: tuple[str, ...] = ()
        """Hosts of its cluster, as far as the server has told, perhaps with its own."""
        self.complaint = ""
        """The last error that the server told."""
        self._silent_turns = 0
        self._parser = NatsParser()
        name, _, port = host.rpartition(":")
        try:
            self._socket = socket.create_connection((name.strip("[]"), int(port)), _CONNECT_SECONDS)
        except (OSError, ValueError, OverflowError) as error:  # also names that no host can have
            raise ConnectionError(f"{host}: {error}") from None
        try:
            self._begin(address, subscription)
            self._limit_turns()
        except (OSError, ValueError, WireError) as error:
            self._socket.close()
            raise ConnectionError(f"{host}: {self.complaint or error}") from None

    def send(self, data: bytes, seconds: float = _SILENT_TURNS * _TURN_SECONDS) -> None:
        """Write all bytes. Raises ConnectionError if that takes longer than `seconds` and one turn."""
        rest = memoryview(data)
        give_up = time.monotonic() + seconds
        while rest:
            try:
                rest = rest[self._socket.send(rest) :]
            except (TimeoutError, BlockingIOError):
                pass  # a TLS socket, too, goes on with these bytes where it stopped
            except OSError as error:
                raise ConnectionError(f"{self.host}: {error}") from None
            if rest and time.monotonic() > give_up:
                raise ConnectionError(f"{self.host} does not take {len(data)} bytes in time")

    def receive(self) -> list[NatsMessage]:
        """Wait for messages, for a second at most, and return those that have come.

        Raises ConnectionError if the connection has ended, or if the server is silent for some seconds.
        """
        try:
            data = self._socket.recv(_READ_BYTES)
        except (TimeoutError, BlockingIOError):
            self._note_silence()
            return []
        except OSError as error:
            raise ConnectionError(f"{self.host}: {error}") from None
        return self._take(data)

    def tend(self) -> list[NatsMessage]:
        """Return the messages that have come, answer the server, and ask it for a sign of life.

        Raises ConnectionError if the connection has ended, or if none of the last signs came.
        """
        self._note_silence()
        return self.take_arrived()

    def take_arrived(self) -> list[NatsMessage]:
        """Return messages that have come, without waiting for any. Raises as `receive` does."""
        found: list[NatsMessage] = []
        for _ in range(_MOST_READS):
            if not self._has_bytes():
                break
            found += self.receive()
        return found

    def interrupt(self) -> None:
        """End the connection under a thread that may use it. That gets a ConnectionError."""
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # a TLS socket's own method is not for two threads

    def close(self) -> None:
        """End the connection. No thread may use it."""
        self._socket.close()

    def _begin(self, address: EngineAddress, subscription: str) -> None:
        """Log in. Raises OSError, ValueError and WireError."""
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        info = self._learn(self._await("INFO", time.monotonic() + _CONNECT_SECONDS))
        give_up = time.monotonic() + _CONNECT_SECONDS
        tls = context(address)
        if tls is not None:
            self._limit(give_up)
            self._socket = tls.wrap_socket(self._socket, server_hostname=certified_name(address, self.host))
            self._parser = NatsParser()  # what came unencrypted behind INFO may be anybody's
        elif info.tls_required:
            raise ValueError("the server wants TLS: the URL must begin with nats+tls://")
        options: dict[str, Any] = _OPTIONS | connect_options(address, info.nonce)
        self._limit(give_up)
        self.send(connect(options) + subscribe(subscription) + PING)
        self._await("PONG", give_up)

    def _limit(self, give_up: float) -> None:
        """Let the next call of the kernel, or the handshake of TLS, end at that time. Raises TimeoutError after it."""
        seconds = give_up - time.monotonic()
        if seconds <= 0:
            raise TimeoutError("the server did not answer in time")
        self._socket.settimeout(seconds)

    def _limit_turns(self) -> None:
        """Let a call of the kernel end after some time. Without TLS the kernel does that without a further call, at the
        end of which the thread would have to wait for the interpreter once more.
        """
        if isinstance(self._socket, ssl.SSLSocket):
            self._socket.settimeout(_TURN_SECONDS)
            return
        self._socket.settimeout(None)
        turn = struct.pack("@ll", _TURN_SECONDS, 0)
        for direction in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            self._socket.setsockopt(socket.SOL_SOCKET, direction, turn)

    def _await(self, verb: str, give_up: float) -> str:
        """Read until the server says `verb`, and return the text behind it. An error in the same bytes has priority."""
        while True:
            self._limit(give_up)
            data = self._socket.recv(_READ_BYTES)
            if not data:
                raise ConnectionError("the server closed the connection")
            lines = [each for each in self._parser.feed(data) if isinstance(each, NatsLine)]
            for line in lines:
                self._obey(line)
                if line.verb == "-ERR":
                    raise ConnectionError(line.text)
            for line in lines:
                if line.verb == verb:
                    return line.text

    def _has_bytes(self) -> bool:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0)) or (isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0)

    def _note_silence(self) -> None:
        """Ask for a sign of life."""
        if self._silent_turns == _SILENT_TURNS:
            raise ConnectionError(f"{self.host} does not answer")
        self._silent_turns += 1
        self.send(PING)

    def _take(self, data: bytes) -> list[NatsMessage]:
        if not data:
            raise ConnectionError(f"{self.host}: {self.complaint or 'it closed the connection'}")
        self._silent_turns = 0
        try:
            found = self._parser.feed(data)
            for each in found:
                if isinstance(each, NatsLine):
                    self._obey(each)
        except WireError as error:
            raise ConnectionError(f"{self.host}: {error}") from None
        return [each for each in found if isinstance(each, NatsMessage)]

    def _obey(self, line: NatsLine) -> None:
        if line.verb == "PING":
            self.send(PONG)
        elif line.verb == "-ERR":
            self.complaint = line.text.strip("'")
        elif line.verb == "INFO":
            self._learn(line.text)

    def _learn(self, text: str) -> ServerInfo:
        """Take what the server tells about itself, at first and whenever it changes. Raises WireError."""
        info = server_info(text)
        self.most_bytes = info.max_payload
        self.others = info.hosts or self.others
        return info
