"""Runs operations on a socket: sends, receives, reconnects, and keeps the connection alive."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from typing import Final, TypeVar

from escrowmq import __version__
from escrowmq.amqp10.attempts import Attempts
from escrowmq.amqp10.endpoint.connection import ConnectionState, Endpoint
from escrowmq.amqp10.errors import AmqpError, ConnectionLost, OperationTimeout, UsageError
from escrowmq.amqp10.operations import Operation, Wait, opened
from escrowmq.amqp10.parameters import Backoff, Parameters
from escrowmq.amqp10.transport import SocketTransport, dial

T = TypeVar("T")
_LONGEST_POLL: Final = 1.0
_LAST_WORDS: Final = 5.0
_LOCK_SECONDS: Final = 5.0


class SocketDriver:
    """The endpoint of a connection, and the socket that carries it.

    With a `backoff`, a lost connection is opened again by the call that notices, and links attach again.
    """

    def __init__(self, targets: Sequence[Parameters], container_id: str, backoff: Backoff | None) -> None:
        self.endpoint = Endpoint(container_id, version=__version__)
        self.endpoint.guard = self
        self.endpoint.wake = self._flush
        self._targets = targets
        self._backoff = backoff
        self._current = 0
        self._transport: SocketTransport | None = None
        self._closed = False
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def target(self) -> Parameters:
        """The address of the current connection."""
        return self._targets[self._current]

    def __enter__(self) -> None:
        if not self._lock.acquire(timeout=_LOCK_SECONDS):
            raise UsageError("another thread is using this connection; give each thread a connection of its own")

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    # -- running

    def connect(self, *, patiently: bool) -> None:
        """Open the first connection: one attempt for each URL, or `patiently` as many as the back-off has."""
        with self:
            self._connect(None, self._backoff if patiently else None)
        if self.target.heartbeat_thread:
            self._thread = threading.Thread(target=self._beat, name="amqp10 heartbeat", daemon=True)
            self._thread.start()

    def run(self, operation: Operation[T], timeout: float | None) -> T:
        """Run an operation to its end.

        Raises:
            OperationTimeout: It took longer than `timeout` seconds.
            ConnectionLost: The connection is lost, and there is no back-off, or it has given up.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self:
            self._check()
            try:
                wait = next(operation)
                while True:
                    self._await(wait, deadline, timeout)
                    wait = operation.send(None)
            except StopIteration as stop:
                self._flush()
                result: T = stop.value
                return result
            except AmqpError:
                self._flush()
                raise

    def poll(self) -> None:
        """Exchange what is ready, without waiting."""
        with self:
            self._check()
            self._turn(0.0)

    def close(self) -> None:
        """Close the connection. It is not an error if the peer is already gone."""
        self._stop.set()
        with self:
            if self._closed:
                return
            self._closed = True
            deadline = time.monotonic() + _LAST_WORDS
            self.endpoint.close()
            with contextlib.suppress(AmqpError):
                while not self._ended() and time.monotonic() < deadline:
                    self._turn(deadline - time.monotonic())
            self.endpoint.lost("the connection was closed", final=True)
            if self._transport is not None:
                self._transport.close()

    def abort(self) -> None:
        """Drop the connection without a word, as a crash would."""
        self._stop.set()
        with self:
            self._closed = True
            if self._transport is not None:
                self._transport.close()
            self.endpoint.lost("the connection was dropped", final=True)

    # -- inside

    def _ended(self) -> bool:
        return self.endpoint.state is ConnectionState.ENDED

    def _check(self) -> None:
        if self._closed:
            raise UsageError("the connection is closed; open a new one")

    def _await(self, wait: Wait, deadline: float | None, timeout: float | None) -> None:
        while not wait.until():
            left = _LONGEST_POLL if deadline is None else deadline - time.monotonic()
            if left <= 0:
                raise OperationTimeout(f"{self.target.address}: waited {timeout:g} s for {wait.what}")
            if self._ended():
                self._reconnect(deadline)
            else:
                self._turn(min(left, _LONGEST_POLL))

    def _turn(self, seconds: float) -> None:
        """Send, wait for input for at most `seconds`, and take it."""
        transport = self._transport
        if transport is None or self._ended():
            return
        try:
            self._send(transport)
            data = transport.receive()
            if data is None:
                seconds = min(seconds, self.endpoint.tick(time.monotonic()))
                self._send(transport)
                if seconds > 0:
                    transport.wait(seconds)
                    data = transport.receive()
            if data is not None:
                self.endpoint.receive(data)
                self._send(transport)
        except ConnectionLost as error:
            self.endpoint.lost(str(error))
        if self._ended():
            transport.close()

    def _send(self, transport: SocketTransport) -> None:
        data = self.endpoint.output()
        if data or transport.writing:
            transport.send(data)

    def _flush(self) -> None:
        """Send what is ready. A failure is noticed by the next call that waits."""
        if self._transport is not None and not self._ended():
            try:
                self._send(self._transport)
            except ConnectionLost as error:
                self.endpoint.lost(str(error))

    def _reconnect(self, deadline: float | None) -> None:
        """Open the connection again. Raises the error that ended it if there is no back-off."""
        if self._backoff is None:
            assert self.endpoint.error is not None
            error = self.endpoint.error.again()
            self.endpoint.lost(str(error), final=True)
            raise error
        self._connect(deadline, self._backoff)

    def _connect(self, deadline: float | None, backoff: Backoff | None) -> None:
        attempts = Attempts(self._targets, self._current, backoff)
        while True:
            self._current = attempts.index
            try:
                self._open(attempts.target)
                return
            except ConnectionLost as error:
                delay = attempts.failed(error)
            if deadline is not None and time.monotonic() + delay > deadline:
                raise OperationTimeout(f"{attempts.target.address}: the broker did not come back in time")
            self._stop.wait(delay)

    def _open(self, target: Parameters) -> None:
        if self._transport is not None:
            self._transport.close()
        deadline = time.monotonic() + target.connection_timeout
        transport = self._transport = SocketTransport(dial(target, deadline), target.address)
        self.endpoint.start(target)
        try:
            self._log_in(target, deadline)
        except BaseException:
            transport.close()
            raise

    def _log_in(self, target: Parameters, deadline: float) -> None:
        while not opened(self.endpoint):
            left = deadline - time.monotonic()
            if left <= 0:
                self.endpoint.lost("the login took too long")
                raise ConnectionLost(f"{target.address}: no login within {target.connection_timeout:g} s")
            self._turn(left)
            if self.endpoint.error is not None:
                raise self.endpoint.error.again()

    def _beat(self) -> None:
        """Exchange bytes while the application makes no calls."""
        while not self._stop.wait(_LONGEST_POLL):
            if self._lock.acquire(blocking=False):
                try:
                    if opened(self.endpoint):
                        self._turn(0.0)
                finally:
                    self._lock.release()
