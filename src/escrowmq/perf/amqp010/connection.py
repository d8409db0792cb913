"""A connection that logs in and attaches sessions, on a blocking socket, before the load begins and after it."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from escrowmq.perf.amqp010 import frames
from escrowmq.perf.amqp010.frames import AssemblyReader, ReceivedAssembly, raise_if_ended
from escrowmq.perf.errors import PerfError, RefusedLogin
from escrowmq.perf.url import Target
from escrowmq.wire.amqp010.codec.frames import MOST_FRAME_MAX, PROTOCOL_HEADER
from escrowmq.wire.amqp010.codec.spec import (
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    ExecutionResult,
    SessionAttach,
    SessionAttached,
    SessionCommandPoint,
    SessionCompleted,
)
from escrowmq.wire.amqp010.codec.structs import Command, Struct
from escrowmq.wire.amqp010.codec.types import UnknownStruct

_DEFAULT_VHOST: Final = "/"
_CALLS_AT_ONCE: Final = 100
"""The most commands that are sent before their answers are read: both fit into the buffers of the sockets."""
T = TypeVar("T")


@dataclass(slots=True)
class SessionNumbers:
    """The numbers of commands in both directions of a session."""

    sent: int = 0
    """The number of the next command that the tool sends."""
    received: int = 0
    """The number of commands that the broker has sent."""
    results: dict[int, Struct | UnknownStruct | None] = field(default_factory=dict)
    """Results by the number of the command, of commands that were sent by `calls`."""


class SessionConnection:
    """A logged-in connection. `frame_max` (bytes) and `channel_max` are agreed with the broker."""

    def __init__(self, target: Target, timeout: float) -> None:
        """Connect, log in and open the virtual host. `timeout` (s) applies to each step.

        Raises PerfError with the reason: no broker answers, it does not speak AMQP 0-10, or it refuses the login.
        """
        self.target = target
        self.product = self.version = ""
        self.frame_max = MOST_FRAME_MAX
        self.channel_max = 0
        self.sessions: dict[int, SessionNumbers] = {}
        self._found: list[ReceivedAssembly] = []
        self._reader = AssemblyReader(self._found.append)
        self._received = b""
        try:
            self.socket = socket.create_connection((target.host, target.port), timeout)
        except OSError as error:
            raise PerfError(f"cannot connect to the broker at {target.address}: {error.strerror or error}") from None
        try:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open()
        except TimeoutError:
            self.socket.close()
            raise PerfError(f"the broker at {target.address} did not answer within {timeout:g} s") from None
        except OSError as error:
            self.socket.close()
            raise PerfError(f"lost the connection to the broker at {target.address}: {error}") from None
        except BaseException:
            self.socket.close()
            raise

    @property
    def rest(self) -> bytes:
        """The incomplete frame that has been read."""
        return self._received

    def attach(self, channel: int) -> SessionNumbers:
        """Attach a session with a new name. Raises PerfError if the broker refuses."""
        if channel > self.channel_max:
            raise PerfError(f"the broker allows no channel above {self.channel_max} on a connection")
        self.socket.sendall(frames.control(channel, SessionAttach(f"perf-{secrets.token_hex(8)}".encode())))
        self._expect(SessionAttached)
        self.socket.sendall(frames.control(channel, SessionCommandPoint(0, 0)))
        numbers = self.sessions[channel] = SessionNumbers()
        return numbers

    def call(self, channel: int, command: Command) -> Any:
        """Send a command and wait for its completion. Returns its result. Raises PerfError if it is refused."""
        return self.calls(channel, [command])[0]

    def calls(self, channel: int, commands: Sequence[Command]) -> list[Any]:
        """Send commands, and wait for their completions. Returns their results, None for those that have none."""
        numbers = self.sessions[channel]
        first = numbers.sent
        try:
            for at in range(0, len(commands), _CALLS_AT_ONCE):
                some = commands[at : at + _CALLS_AT_ONCE]
                self.socket.sendall(b"".join([frames.command(channel, each, sync=True) for each in some]))
                numbers.sent += len(some)
                self._await(channel, numbers.sent - len(some), numbers.sent - 1)
        except TimeoutError:
            raise PerfError(f"the broker at {self.target.address} did not answer in time") from None
        except OSError as error:
            raise PerfError(f"lost the connection to the broker at {self.target.address}: {error}") from None
        return [numbers.results.pop(number, None) for number in range(first, numbers.sent)]

    def _await(self, channel: int, first: int, last: int) -> None:
        """Read until the commands from `first` to `last` are complete."""
        numbers, missing = self.sessions[channel], set(range(first, last + 1))
        while missing:
            received = self._next()
            if isinstance(received.what, Command):
                numbers.received += 1
            if isinstance(received.what, ExecutionResult):
                numbers.results[int(received.what.command_id or 0)] = received.what.value
            elif isinstance(received.what, SessionCompleted):
                for lower, upper in received.what.commands or ():
                    missing.difference_update(range(max(lower, first), min(upper, last) + 1))

    def close(self) -> None:
        """Close the connection; the broker need not answer."""
        try:
            self.socket.setblocking(True)
            self.socket.settimeout(1.0)
            self.socket.sendall(frames.control(0, ConnectionClose(200, "done")))
            while not isinstance(self._next(raising=False).what, ConnectionCloseOk):
                pass
        except (OSError, PerfError):
            pass  # the measurement is over, so the error no longer matters
        finally:
            self.socket.close()

    def _open(self) -> None:
        target = self.target
        self.socket.sendall(PROTOCOL_HEADER)
        header = self._take(len(PROTOCOL_HEADER))
        if header != PROTOCOL_HEADER:
            raise PerfError(f"the server at {target.address} does not speak AMQP 0-10; it offered {header!r}")
        start = self._expect(ConnectionStart)
        properties = start.server_properties or {}
        self.product, self.version = str(properties.get("product", "")), str(properties.get("version", ""))
        response = b"\0" + target.user.encode() + b"\0" + target.password.encode()
        client = {"product": "escrowmq perf", "qpid.client_process": "escrowmq perf"}
        self.socket.sendall(frames.control(0, ConnectionStartOk(client, "PLAIN", response, "en_US")))
        try:
            tune = self._expect(ConnectionTune)
        except PerfError as error:
            raise RefusedLogin(target.address, target.user, str(error)) from None
        self.frame_max = min(tune.max_frame_size or MOST_FRAME_MAX, MOST_FRAME_MAX)
        self.channel_max = tune.channel_max or 0xFFFF
        vhost = "" if target.vhost == _DEFAULT_VHOST else target.vhost
        self.socket.sendall(
            frames.control(0, ConnectionTuneOk(tune.channel_max, self.frame_max, 0))
            + frames.control(0, ConnectionOpen(vhost))
        )
        self._expect(ConnectionOpenOk)

    def _expect(self, kind: type[T]) -> T:
        """Return the next control of this kind. Controls and commands before it are passed over."""
        while True:
            found = self._next().what
            if isinstance(found, kind):
                return found

    def _next(self, *, raising: bool = True) -> ReceivedAssembly:
        """Return what the broker sends next. Raises PerfError if it ends the session or the connection instead."""
        while not self._found:
            size = self._reader.take(self._received, 0, len(self._received))
            if size:
                self._received = self._received[size:]
            else:
                self._received += self._read()
        found = self._found.pop(0)
        if raising:
            raise_if_ended(found.what)
        return found

    def _take(self, size: int) -> bytes:
        while len(self._received) < size:
            self._received += self._read()
        taken, self._received = self._received[:size], self._received[size:]
        return taken

    def _read(self) -> bytes:
        data = self.socket.recv(65536)
        if not data:
            raise PerfError(
                f"the broker at {self.target.address} closed the connection without giving a reason "
                "(wrong user, password or virtual host?)"
            )
        return data
