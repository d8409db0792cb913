"""Runs operations on an event loop: sends, receives, reconnects, and keeps the connection alive."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final, TypeVar

from escrowmq import __version__
from escrowmq.amqp10.attempts import Attempts
from escrowmq.amqp10.endpoint.connection import ConnectionState, Endpoint
from escrowmq.amqp10.errors import AmqpError, ConnectionLost, OperationTimeout, UsageError
from escrowmq.amqp10.operations import Operation, Wait, opened
from escrowmq.amqp10.parameters import Backoff, Parameters

T = TypeVar("T")
_LAST_WORDS: Final = 5.0


class _Protocol(asyncio.Protocol):
    """Connects a transport of asyncio to the driver."""

    def __init__(self, driver: LoopDriver) -> None:
        self._driver = driver

    def data_received(self, data: bytes) -> None:
        self._driver.received(self, data)

    def connection_lost(self, error: Exception | None) -> None:
        self._driver.disconnected(self, error)


class LoopDriver:
    """The endpoint of a connection, and the transport that carries it.

    With a `backoff`, a task opens a lost connection again, and links attach again.
    """

    def __init__(self, targets: Sequence[Parameters], container_id: str, backoff: Backoff | None) -> None:
        self.endpoint = Endpoint(container_id, version=__version__)
        self.endpoint.wake = self._flush
        self._targets = targets
        self._backoff = backoff
        self._current = 0
        self._transport: asyncio.Transport | None = None
        self._protocol: _Protocol | None = None
        self._closed = False
        self._failure: AmqpError | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._reconnecting: asyncio.Task[None] | None = None
        self._connecting = False

    @property
    def target(self) -> Parameters:
        """The address of the current connection."""
        return self._targets[self._current]

    # -- running

    async def connect(self, *, patiently: bool) -> None:
        """Open the first connection: one attempt for each URL, or `patiently` as many as the back-off has."""
        await self._connect(self._backoff if patiently else None)

    async def run(self, operation: Operation[T], timeout: float | None) -> T:
        """Run an operation to its end.

        Raises:
            OperationTimeout: It took longer than `timeout` seconds.
            ConnectionLost: The connection is lost, and there is no back-off, or it has given up.
        """
        self._check()
        try:
            wait = next(operation)
            self._flush()
            loop = asyncio.get_running_loop()
            deadline = None if timeout is None else loop.time() + timeout
            while True:
                await self._await(wait, deadline, timeout)
                wait = operation.send(None)
                self._flush()
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            self._flush()

    async def close(self) -> None:
        """Close the connection. It is not an error if the peer is already gone."""
        if self._closed:
            return
        self._closed = True
        if self._reconnecting is not None:
            self._reconnecting.cancel()
        self.endpoint.close()
        self._flush()
        with contextlib.suppress(AmqpError, TimeoutError):
            async with asyncio.timeout(_LAST_WORDS):
                while self.endpoint.state is not ConnectionState.ENDED:
                    await self._change()
        self.abort()

    def abort(self) -> None:
        """Drop the connection without a word."""
        self._closed = True
        self.endpoint.lost("the connection was closed", final=True)
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        self.changed()

    # -- what the transport reports

    def received(self, protocol: _Protocol, data: bytes) -> None:
        """Take bytes of the peer."""
        if protocol is self._protocol:
            self.endpoint.receive(data)
            self._flush()
            if self.endpoint.state is ConnectionState.ENDED:
                self._ended()
            self.changed()

    def disconnected(self, protocol: _Protocol, error: Exception | None) -> None:
        """The transport has ended."""
        if protocol is self._protocol:
            self.endpoint.lost(f"{self.target.address}: {error or 'closed the connection without a reason'}")
            self._ended()
            self.changed()

    def changed(self) -> None:
        """Have all waiting tasks look again."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    # -- inside

    def _check(self) -> None:
        if self._closed:
            raise UsageError("the connection is closed; open a new one")

    async def _await(self, wait: Wait, deadline: float | None, timeout: float | None) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                while not self._holds(wait):
                    if self._failure is not None:
                        raise self._failure.again()
                    self._check()
                    await self._change()
                    self._flush()
        except TimeoutError:
            raise OperationTimeout(f"{self.target.address}: waited {timeout:g} s for {wait.what}") from None

    def _holds(self, wait: Wait) -> bool:
        """Evaluate the condition. If the connection has failed, links fail only in consequence."""
        try:
            return bool(wait.until())
        except AmqpError:
            if self._failure is not None:
                raise self._failure.again() from None
            raise

    async def _change(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def _flush(self) -> None:
        """Send what is ready."""
        data = self.endpoint.output()
        if data and self._transport is not None:
            self._transport.write(data)

    def _ended(self) -> None:
        if self._transport is not None:
            self._transport.close()
        self._protocol = None
        if self._closed or self._connecting:
            return
        if self._backoff is None:
            self._fail(self.endpoint.error or ConnectionLost("the connection is closed"))
        else:
            self._reconnecting = asyncio.get_running_loop().create_task(self._reconnect())

    def _fail(self, error: AmqpError) -> None:
        self._failure = error
        self.endpoint.lost(str(error), final=True)
        self.changed()

    async def _reconnect(self) -> None:
        try:
            await self._connect(self._backoff)
        except ConnectionLost as error:
            self._fail(error)
        finally:
            self._reconnecting = None

    async def _connect(self, backoff: Backoff | None) -> None:
        attempts = Attempts(self._targets, self._current, backoff)
        self._connecting = True
        try:
            await self._attempt(attempts)
        finally:
            self._connecting = False

    async def _attempt(self, attempts: Attempts) -> None:
        while True:
            self._current = attempts.index
            try:
                await self._open(attempts.target)
                self.changed()
                return
            except ConnectionLost as error:
                delay = attempts.failed(error)
            await asyncio.sleep(delay)

    async def _open(self, target: Parameters) -> None:
        loop = asyncio.get_running_loop()
        name = (target.server_name or target.host) if target.ssl_context is not None else None
        try:
            async with asyncio.timeout(target.connection_timeout):
                transport, protocol = await loop.create_connection(
                    lambda: _Protocol(self), target.host, target.port, ssl=target.ssl_context, server_hostname=name
                )
                self._transport, self._protocol = transport, protocol
                self.endpoint.start(target)
                self._flush()
                while not opened(self.endpoint):
                    if self.endpoint.error is not None:
                        raise self.endpoint.error.again()
                    await self._change()
        except TimeoutError:
            self._drop()
            raise ConnectionLost(f"{target.address}: no login within {target.connection_timeout:g} s") from None
        except OSError as error:
            raise ConnectionLost(f"{target.address}: {error.strerror or error}") from error
        except BaseException:
            self._drop()
            raise
        self._tick()

    def _drop(self) -> None:
        self._protocol = None
        if self._transport is not None:
            self._transport.abort()

    def _tick(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._closed:
            return
        loop = asyncio.get_running_loop()
        seconds = self.endpoint.tick(loop.time())
        self._flush()
        if self.endpoint.state is ConnectionState.ENDED:
            self._ended()
            self.changed()
        else:
            self._timer = loop.call_later(seconds, self._tick)
