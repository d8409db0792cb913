"""The lower half of a connection: login, waiting, methods on channel 0, and closing."""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Final, TypeVar

from escrowmq import __version__
from escrowmq.client import errors, handshake
from escrowmq.client.channel_base import DEFAULT, ChannelBase, Default, Timeout
from escrowmq.client.errors import ConnectionClosed, InterfaceError, OperationalError
from escrowmq.client.guard import Guard
from escrowmq.client.incoming import Incoming, Run, Sink
from escrowmq.client.parameters import Parameters
from escrowmq.client.requests import Content, Requests
from escrowmq.client.transport import Transport, dial
from escrowmq.wire.amqp091 import codes, spec
from escrowmq.wire.amqp091.errors import SyntaxFault
from escrowmq.wire.amqp091.frames import PROTOCOL_HEADER, method_frame
from escrowmq.wire.amqp091.method import Method
from escrowmq.wire.amqp091.table import FieldTable

C = TypeVar("C", bound=ChannelBase)
M = TypeVar("M", bound=Method)
_LAST_WORDS: Final = 1.0  # seconds; the broker may never read the last methods


class Link(ABC):
    """A logged-in connection with its channels."""

    def __init__(self, wanted: Parameters) -> None:
        self.parameters = wanted
        self.guard = Guard()
        self.blocked: str | None = None
        """The broker's reason while it blocks publishes from this connection (connection.blocked), otherwise None."""
        self.server_properties: FieldTable = {}
        self.channel_max = self.frame_max = self.heartbeat = 0
        """The limits that were agreed with the broker, 0 for none. `heartbeat` is in seconds."""
        self.error: ConnectionClosed | None = None
        self._closed = False
        self._running = False
        self._channels: dict[int, ChannelBase] = {}
        self._requests = Requests()
        self._changed = False  # whether an event has occurred for which `process_data_events` returns
        self._first: deque[Method] = deque()  # methods received during login
        self._incoming = Incoming(self._sink)
        deadline = time.monotonic() + wanted.connection_timeout
        self._transport = Transport(dial(wanted, deadline), self._incoming.feed, wanted.address)
        try:
            self._log_in(deadline)
        except BaseException:
            self._closed = True
            self._transport.close()
            raise
        if wanted.heartbeat_thread:
            self._transport.start_thread()

    @property
    def is_open(self) -> bool:
        """Whether the connection can be used."""
        return not self._closed and self.error is None

    @property
    def is_closed(self) -> bool:
        """Whether the connection can no longer be used."""
        return not self.is_open

    @property
    @abstractmethod
    def tpc_prepared(self) -> bool:
        """Whether there is a branch that awaits only its outcome."""

    @abstractmethod
    def process_data_events(self, time_limit: float | None = 0) -> None:
        """Run the callbacks for everything that has arrived."""

    @abstractmethod
    def leave_branch(self, channel: ChannelBase) -> None:
        """Detach a channel that the application is about to close from its branch."""

    def _log_in(self, deadline: float) -> None:
        wanted = self.parameters
        self._transport.queue(PROTOCOL_HEADER)
        start = self._handshake(spec.ConnectionStart, deadline)
        self.server_properties = start.server_properties
        self.answer(0, handshake.start_ok(start, wanted, __version__))
        tuned = handshake.tune_ok(self._handshake(spec.ConnectionTune, deadline), wanted)
        self.channel_max, self.frame_max, self.heartbeat = tuned
        self._incoming.frame_max = tuned.frame_max
        self._transport.set_heartbeat(tuned.heartbeat)
        self.answer(0, spec.ConnectionTuneOk(*tuned))
        self.answer(0, spec.ConnectionOpen(wanted.virtual_host))
        self._handshake(spec.ConnectionOpenOk, deadline)
        self._running = True

    def _handshake(self, kind: type[M], deadline: float) -> M:
        """Wait for the broker's next step of the login. Raises the error for any other method."""
        if not self.wait(lambda: self._first, max(deadline - time.monotonic(), 0.0)):
            address, limit = self.parameters.address, self.parameters.connection_timeout
            raise errors.Timeout(f"{address} did not complete the login within {limit:g} s")
        method = self._first.popleft()
        if not isinstance(method, kind):
            raise handshake.refused(method, self.parameters)
        return method

    def open_channel(self, kind: type[C], timeout: Timeout = DEFAULT) -> C:
        """Open a channel of this class. For use inside the package."""
        self.check_open()
        most = self.channel_max or 65535
        number = next((n for n in range(1, most + 1) if n not in self._channels), 0)
        if not number:
            raise OperationalError(f"all {most} channels of the connection are in use")
        channel = kind(self, number)
        self._channels[number] = channel
        try:
            channel.rpc(spec.ChannelOpen(), timeout=timeout)
        except BaseException:
            self._channels.pop(number, None)
            raise
        return channel

    def close(self, reply_code: int = 200, reply_text: str = "Normal shutdown", *, timeout: Timeout = DEFAULT) -> None:
        """Close the connection. Uncommitted work is rolled back; a prepared branch stays in doubt.

        It is not an error if the broker is already gone.
        """
        if self.guard.forked:  # the parent process owns the connection; this process only has a copy of the socket
            self._closed = True
            self._transport.close()
            return
        with self.guard:
            try:
                if self.is_open:
                    method = spec.ConnectionClose(reply_code, reply_text, 0, 0)
                    self.send(method_frame(0, method), timeout)
                    request = self._requests.add(method)
                    # While the broker blocks this connection, it reads nothing that follows a publish.
                    limit = timeout if self.blocked is None else _LAST_WORDS
                    self.wait(lambda: request is None or request.answer is not None, limit)
            except OperationalError:
                pass  # the connection is closed, as the caller wants
            finally:
                self._closed = True
                if self.blocked is None:
                    self._transport.close()
                else:
                    self._transport.abort()

    # -- writing, reading, waiting

    def check_open(self) -> None:
        """Raise the error that ended the connection, or InterfaceError if the application closed it."""
        if self.error is not None:
            self._end()
            raise self.error.again()
        if self._closed:
            raise InterfaceError("the connection is closed")

    def send(self, data: bytes, timeout: Timeout = DEFAULT) -> None:
        """Send data, and read while the socket accepts no more."""
        self.check_open()
        seconds = self._seconds(timeout)
        self._do(lambda: self._transport.send(data, seconds))
        if self.error is not None:
            self.check_open()

    def poll(self) -> None:
        """Read the data that has arrived, without waiting."""
        self._do(self._transport.poll)

    def wait(self, done: Callable[[], object], timeout: Timeout) -> bool:
        """Process the connection until `done()` is true. Returns False after `timeout` seconds.

        If `done()` has become true, it returns True even if the connection has ended at the same time.
        """
        left = seconds = self._seconds(timeout)
        deadline = None if seconds is None else time.monotonic() + seconds
        while not done():
            self.check_open()
            if left is not None and left < 0:
                return False
            self._turn(left)
            if deadline is not None:
                left = deadline - time.monotonic()
        if self._transport.writing and self.error is None:
            self._do(self._transport.flush)
        return True

    def _turn(self, seconds: float | None) -> None:
        self._do(lambda: self._transport.turn(seconds))

    def wait_for(self, done: Callable[[], object], timeout: Timeout, what: str) -> None:
        """Wait like `wait`, but raise Timeout after `timeout` seconds. `what` names the awaited event in the error."""
        if not self.wait(done, timeout):
            raise self._late(f"{self.parameters.address}: no {what} within {self._seconds(timeout):g} s")

    def _late(self, text: str) -> errors.Timeout:
        why = "" if self.blocked is None else f"; the broker is blocking publishes: {self.blocked}"
        return errors.Timeout(text + why)

    def answer(self, number: int, method: Method) -> None:
        """Queue a method to be sent at the next opportunity. For answers given while reading."""
        self._transport.queue(method_frame(number, method))

    def dropped(self, channel: ChannelBase) -> None:
        """Forget a channel that is closed."""
        if self._channels.get(channel.channel_number) is channel:
            del self._channels[channel.channel_number]
        self._incoming.forget(channel, channel.channel_number)
        self._changed = True

    def _seconds(self, timeout: Timeout) -> float | None:
        return self.parameters.timeout if isinstance(timeout, Default) else timeout

    def _do(self, action: Callable[[], object]) -> None:
        """Write or read. An error ends the connection and is raised by the next `check_open`."""
        try:
            action()
        except ConnectionClosed as error:
            self.error = self.error or error
        except SyntaxFault as fault:
            self.answer(0, spec.ConnectionClose(fault.code, fault.text[:200], 0, 0))
            self.error = self.error or ConnectionClosed(fault.code, str(fault), where=self.parameters.address)
        except errors.Timeout as error:
            late = self._late(str(error))
            # A part of a frame may have been sent, so nothing can follow it.
            self.error = ConnectionClosed(0, f"gave up: {late}", where=self.parameters.address)
            self._transport.abort()
            self._closed = True
            raise late from None

    def _end(self) -> None:
        """Close the connection after an error, sending queued methods if the socket accepts them."""
        if not self._closed:
            self._closed = True
            with contextlib.suppress(ConnectionClosed, errors.Timeout, SyntaxFault):
                self._transport.drain(_LAST_WORDS)
            self._transport.close()

    # -- incoming methods on channel 0

    def _sink(self, number: int) -> Sink | None:
        return self._channels.get(number) if number else self

    def on_deliveries(self, run: Run) -> None:
        """Refuse deliveries: there are none on channel 0."""
        raise SyntaxFault(codes.COMMAND_INVALID, "basic.deliver on channel 0")

    def on_method(self, method: Method, content: Content | None) -> None:
        """Handle a method on channel 0."""
        if not self._running:
            self._first.append(method)
        elif self._requests.expects(method.INDEX):
            self._requests.answered(method, content)
        elif isinstance(method, spec.ConnectionClose):
            of = spec.METHODS.get(method.class_id << 16 | method.method_id)
            self.error = ConnectionClosed(
                method.reply_code, method.reply_text, of.NAME if of else "", self.parameters.address
            )
            self.answer(0, spec.ConnectionCloseOk())
        elif isinstance(method, spec.ConnectionBlocked):
            self.blocked = method.reason
        elif isinstance(method, spec.ConnectionUnblocked):
            self.blocked = None
