"""The replicated log as a NATS JetStream stream with one subject: a position is a sequence number less one.

The client library is of asyncio. For all but appends, it runs in a thread of its own, and callers wait for it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import random
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import nats.errors

from escrowmq.replica.engines.address import EngineAddress
from escrowmq.replica.engines.nats_client import NatsErrors, connect
from escrowmq.replica.engines.nats_nearest import NearestAppender
from escrowmq.replica.engines.nats_node import find_node
from escrowmq.replica.engines.nats_reader import NatsReader, answer_seconds
from escrowmq.replica.engines.nats_stream import NatsPatience, NatsStream, StreamMissing
from escrowmq.replica.engines.port import EngineState
from escrowmq.replica.engines.settings import WrongSetting
from escrowmq.replica.errors import AppendUnknown
from escrowmq.replica.log import StoredEntry

_Result = TypeVar("_Result")
_PAUSE: Final = 0.1
_GRACE_SECONDS: Final = 2.0
_GLANCE_SECONDS: Final = 0.25
_UNREAD_SECONDS: Final = 4.0
"""After such a time without entries that the stream is said to have, another server is asked."""


class NatsLog:
    """A log on NATS JetStream. Several threads may use it; appends are made one after the other."""

    def __init__(self, address: EngineAddress, timeout: float) -> None:
        """Connect, and create the stream unless it exists. Raises OSError."""
        self.address = address
        self._timeout = timeout
        self._appender = NearestAppender(address, timeout, self._leading_node, self._find)
        # Not uvloop, whose `close` waits without end for connections to nodes that are suspended.
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="replication-nats", daemon=True)
        self._thread.start()
        hosts = random.sample(address.hosts, len(address.hosts))
        try:
            self._client = self._wait(connect(address, hosts, timeout, NatsErrors()))
            self._stream = NatsStream(address, self._client, timeout)
            self._wait(self._stream.open())
            self._reader = NatsReader(self._client, address.name)
            self._wait(self._reader.open())
            self._appender.connect(hosts)
        except BaseException:
            self.close()
            raise

    def append(self, entries: Sequence[bytes]) -> list[int]:
        """Append entries in order, and wait for a majority of replicas. See `ReplicatedLog`."""
        return self.send(entries)()

    def send(self, entries: Sequence[bytes]) -> Callable[[], list[int]]:
        """Begin to append entries. See `ReplicatedLog`."""
        return partial(self._acknowledged, self._appender.send(entries), self._appender.host)

    def _acknowledged(self, finish: Callable[[], list[int]], host: str) -> list[int]:
        try:
            positions = finish()
        except AppendUnknown:
            leaving = self._leave(host)
            try:
                asyncio.run_coroutine_threadsafe(leaving, self._loop)
            except RuntimeError:  # the log was closed
                leaving.close()
            raise
        self._stream.acknowledged = positions[-1] + 1
        return positions

    async def _leave(self, host: str) -> None:
        """Leave a server that did not acknowledge an append. It may be cut off, and not know it yet."""
        connected = self._client.connected_url
        if connected is not None and connected.netloc.rpartition("@")[2] == host:
            await self._client.force_reconnect()

    def approach(self) -> None:
        """Append at the node that leads the stream. See `EngineLog`."""
        self._appender.approach()

    def _leading_node(self) -> str:
        return self.state().leader

    def _find(self, node: str) -> list[str]:
        """Return the host where the node of this name is, followed by the others, or nothing."""
        others = [each.netloc.rpartition("@")[2] for each in self._client.servers]
        hosts = list(dict.fromkeys([*self.address.hosts, *others]))
        host = self._wait(find_node(hosts, node))
        return [] if host is None else [host, *(each for each in hosts if each != host)]

    def read(self, position: int, most: int) -> list[StoredEntry]:
        """Return entries that a majority of replicas has. See `ReplicatedLog`."""
        return self._wait(self._read(position, most))

    def glance(self, position: int, most: int) -> list[StoredEntry]:
        """Return entries that one of the replicas has. See `ReplicatedLog`."""
        return self._wait(self._reader.read(position, most, _GLANCE_SECONDS))

    async def _read(self, position: int, most: int) -> list[StoredEntry]:
        give_up = time.monotonic() + self._timeout
        patience = NatsPatience(self._client, _UNREAD_SECONDS)
        attempts = 0
        while True:
            found = await self._reader.read(position, most, answer_seconds(attempts))
            if found or (await self._stream.ends())[1] <= position:
                return found
            if time.monotonic() > give_up:
                raise TimeoutError(f"NATS at {self.address} does not deliver the entry at {position}")
            attempts += 1
            await patience.leave_in_time()
            await asyncio.sleep(_PAUSE)

    def begin(self) -> int:
        """Return the position of the oldest entry."""
        return self._wait(self._stream.ends())[0]

    def end(self) -> int:
        """Return the position behind the newest entry that the stream's leader has applied, as a majority has it."""
        return self._wait(self._stream.ends())[1]

    def trim(self, before: int) -> None:
        """Delete the entries before a position."""
        self._wait(self._stream.trim(before))

    def check(self) -> list[WrongSetting]:
        """Return the settings of the stream that are wrong now."""
        return self._wait(self._stream.check())

    def state(self) -> EngineState:
        """Ask for leader and replicas."""
        return self._wait(self._stream.state())

    def close(self) -> None:
        """Disconnect, and end the thread."""
        if self._loop.is_closed():
            return
        if hasattr(self, "_client"):
            with contextlib.suppress(Exception):
                asyncio.run_coroutine_threadsafe(self._shut(), self._loop).result(_GRACE_SECONDS)
        self._appender.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _shut(self) -> None:
        """Close the connection, and let the loop do what is left of it."""
        await self._client.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0)

    def _wait(self, coroutine: Coroutine[Any, Any, _Result]) -> _Result:
        """Run a coroutine in the thread of the client, and return its result."""
        if self._loop.is_closed():
            coroutine.close()
            raise ConnectionError(f"NATS at {self.address}: the connection was closed")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result(self._timeout + _GRACE_SECONDS)
        except concurrent.futures.TimeoutError as error:
            if future.cancel():
                raise TimeoutError(f"NATS at {self.address} did not answer in {self._timeout:g} s") from None
            raise TimeoutError(str(error)) from None
        except concurrent.futures.CancelledError:
            raise ConnectionError(f"NATS at {self.address}: the connection was closed") from None
        except nats.errors.Error as error:
            raise ConnectionError(f"NATS at {self.address}: {error}") from None
        except StreamMissing as error:
            raise ConnectionError(str(error)) from None
