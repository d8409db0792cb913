"""The ways between the servers of a NATS cluster, each through a proxy, so that one can be cut off from the others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from functools import partial
from itertools import permutations

_READ_BYTES = 1 << 16


class NatsRoutes:
    """For each two of some servers, a port at which the first one reaches the second one.

    While a server is cut off, nothing passes, and no connection ends.
    """

    def __init__(self, peer_ports: Sequence[int]) -> None:
        self._peer_ports = peer_ports
        self._ports: dict[tuple[int, int], int] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="routes")
        self._tasks: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []
        self._connected = [asyncio.Event() for _ in peer_ports]
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        self.mend()

    def port(self, source: int, target: int) -> int:
        """Return where `source` finds `target`."""
        return self._ports[source, target]

    def cut_off(self, node: int) -> None:
        """Let nothing pass to a node and from it."""
        self._loop.call_soon_threadsafe(self._connected[node].clear)

    def mend(self) -> None:
        """Let everything pass."""
        for each in self._connected:
            self._loop.call_soon_threadsafe(each.set)

    def close(self) -> None:
        """End all connections."""
        asyncio.run_coroutine_threadsafe(self._shut(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _listen(self) -> None:
        for source, target in permutations(range(len(self._peer_ports)), 2):
            server = await asyncio.start_server(partial(self._accept, source, target), "127.0.0.1", 0)
            self._servers.append(server)
            self._ports[source, target] = server.sockets[0].getsockname()[1]

    def _accept(self, source: int, target: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._join(source, target, reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _join(self, source: int, target: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._passable(source, target)
            back, onward = await asyncio.open_connection("127.0.0.1", self._peer_ports[target])
            try:
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._pass(source, target, reader, onward))
                    both.create_task(self._pass(source, target, back, writer))
            finally:
                onward.transport.abort()
        except* OSError:
            pass
        finally:
            writer.transport.abort()

    async def _pass(self, source: int, target: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_READ_BYTES):
            await self._passable(source, target)
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError

    async def _passable(self, *nodes: int) -> None:
        while not all(self._connected[node].is_set() for node in nodes):
            for node in nodes:
                await self._connected[node].wait()

    async def _shut(self) -> None:
        for server in self._servers:
            server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # so that the transports close
