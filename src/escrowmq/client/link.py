"""The lower half of a connection: logging in, waiting, what is said on channel 0, and the end."""

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
_LAST_WORDS: Final = 1.0  # seconds for a farewell that perhaps nobody reads


class Link(ABC):
    """A connection that is logged in, with its channels."""

    def __init__(self, wanted: Parameters) -> None:
        self.parameters = wanted
        self.guard = Guard()
        self.blocked: str | None = None
        """The broker's reason while it takes no publishes from this connection (connection.blocked)."""
        self.server_properties: FieldTable = {}
        self.channel_max = self.frame_max = self.heartbeat = 0
        """As agreed with the broker; seconds for the heartbeat, 0 for none and for no limit."""
        self.error: ConnectionClosed | None = None
        self._closed = False
        self._running = False
        self._channels: dict[int, ChannelBase] = {}
        self._requests = Requests()
        self._changed = False  # something has happened that `process_data_events` returns for
        self._first: deque[Method] = deque()  # methods of the handshake
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
        """Whether it can be used."""
        return not self._closed and self.error is None

    @property
    def is_closed(self) -> bool:
        """Whether it can no longer be used."""
        return not self.is_open

    @property
    @abstractmethod
    def tpc_prepared(self) -> bool:
        """Whether there is a branch that waits for its outcome alone."""

    @abstractmethod
    def process_data_events(self, time_limit: float | None = 0) -> None:
        """Run callbacks for what has come."""

    @abstractmethod
    def leave_branch(self, channel: ChannelBase) -> None:
        """A channel is about to be closed by the program."""

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
        """The next step of the broker. Raises what else it did."""
        if not self.wait(lambda: self._first, max(deadline - time.monotonic(), 0.0)):
            address, limit = self.parameters.address, self.parameters.connection_timeout
            raise errors.Timeout(f"{address} did not complete the login in {limit:g} s")
        method = self._first.popleft()
        if not isinstance(method, kind):
            raise handshake.refused(method, self.parameters.address)
        return method

    def open_channel(self, kind: type[C], timeout: Timeout = DEFAULT) -> C:
        """Open a channel of this class. For use inside the package."""
        self.check_open()
        most = self.channel_max or 65535
        number = next((n for n in range(1, most + 1) if n not in self._channels), 0)
        if not number:
            raise OperationalError(f"all {most} channels of the connection are open")
        channel = kind(self, number)
        self._channels[number] = channel
        try:
            channel.rpc(spec.ChannelOpen(), timeout=timeout)
        except BaseException:
            self._channels.pop(number, None)
            raise
        return channel

    def close(self, reply_code: int = 200, reply_text: str = "Normal shutdown", *, timeout: Timeout = DEFAULT) -> None:
        """Close it. What is not committed is rolled back; a prepared branch stays in doubt.

        That the broker is gone already is no error.
        """
        if self.guard.forked:  # the connection is the parent's; this process has only a copy of its socket
            self._closed = True
            self._transport.close()
            return
        with self.guard:
            try:
                if self.is_open:
                    method = spec.ConnectionClose(reply_code, reply_text, 0, 0)
                    self.send(method_frame(0, method), timeout)
                    request = self._requests.add(method)
                    # A broker that holds publishes of this connection back reads nothing that comes behind them.
                    limit = timeout if self.blocked is None else _LAST_WORDS
                    self.wait(lambda: request is None or request.answer is not None, limit)
            except OperationalError:
                pass  # which is what was wanted
            finally:
                self._closed = True
                if self.blocked is None:
                    self._transport.close()
                else:
                    self._transport.abort()

    # -- writing, reading, waiting

    def check_open(self) -> None:
        """Raise what ended the connection, or InterfaceError if that was the program itself."""
        if self.error is not None:
            self._end()
            raise self.error.again()
        if self._closed:
            raise InterfaceError("the connection is closed")

    def send(self, data: bytes, timeout: Timeout = DEFAULT) -> None:
        """Send, and read meanwhile if that takes time."""
        self.check_open()
        seconds = self._seconds(timeout)
        self._do(lambda: self._transport.send(data, seconds))
        if self.error is not None:
            self.check_open()

    def poll(self) -> None:
        """Read what is there."""
        self._do(self._transport.poll)

    def wait(self, done: Callable[[], object], timeout: Timeout) -> bool:
        """See to the connection until `done`, even if the end follows at once; False after the timeout."""
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
        """As `wait`; raises Timeout."""
        if not self.wait(done, timeout):
            raise self._late(f"{self.parameters.address}: no {what} in {self._seconds(timeout):g} s")

    def _late(self, text: str) -> errors.Timeout:
        why = "" if self.blocked is None else f", as the broker takes no messages now: {self.blocked}"
        return errors.Timeout(text + why)

    def answer(self, number: int, method: Method) -> None:
        """Send with the next opportunity; for what is said while reading."""
        self._transport.queue(method_frame(number, method))

    def dropped(self, channel: ChannelBase) -> None:
        """A channel is closed."""
        if self._channels.get(channel.channel_number) is channel:
            del self._channels[channel.channel_number]
        self._incoming.forget(channel, channel.channel_number)
        self._changed = True

    def _seconds(self, timeout: Timeout) -> float | None:
        return self.parameters.timeout if isinstance(timeout, Default) else timeout

    def _do(self, action: Callable[[], object]) -> None:
        """Write or read. What goes wrong with that ends the connection, which the next `check_open` tells."""
        try:
            action()
        except ConnectionClosed as error:
            self.error = self.error or error
        except SyntaxFault as fault:
            self.answer(0, spec.ConnectionClose(fault.code, fault.text[:200], 0, 0))
            self.error = self.error or ConnectionClosed(fault.code, str(fault), where=self.parameters.address)
        except errors.Timeout as error:
            late = self._late(str(error))
            # Half a frame may have gone: nothing can follow it.
            self.error = ConnectionClosed(0, f"given up: {late}", where=self.parameters.address)
            self._transport.abort()
            self._closed = True
            raise late from None

    def _end(self) -> None:
        """The connection is over; send what is still to be said, if it goes at once."""
        if not self._closed:
            self._closed = True
            with contextlib.suppress(ConnectionClosed, errors.Timeout, SyntaxFault):
                self._transport.drain(_LAST_WORDS)
            self._transport.close()

    # -- what comes on channel 0

    def _sink(self, number: int) -> Sink | None:
        return self._channels.get(number) if number else self

    def on_deliveries(self, run: Run) -> None:
        """Deliveries on channel 0, where there are none."""
        raise SyntaxFault(codes.COMMAND_INVALID, "basic.deliver on channel 0")

    def on_method(self, method: Method, content: Content | None) -> None:
        """A method on channel 0."""
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
