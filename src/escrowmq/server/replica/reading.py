"""Reads of streams on a standby: which process serves a client, and the bytes between the two.

A client of AMQP 0-9-1 says in its properties that it only reads (`client.reads`). To plan, it is served from a copy
that was begun after the client has come, or that has all that was confirmed until then. For a task, it reads messages
that another connection has found: any running copy that is not older than that one has them, at the same positions.
The newest is such a copy, unless a newer one has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from escrowmq.admin.operation import OperationRefused
from escrowmq.client.reads import TASK
from escrowmq.server.listener import peer_of
from escrowmq.server.replica.reading_process import ReadingError, ReadingProcess
from escrowmq.text import counted

IDLE_SECONDS: Final = 30.0
"""The time without clients after which the newest copy ends. An older one ends with its last client."""
MOST: Final = 3
"""The number of copies at one time. The oldest is ended for a further one; its clients go on with the newest."""
MOST_CLIENTS: Final = 1000
"""The number of connections that are served, or wait for a copy, at one time."""
ANSWER_SECONDS: Final = 30.0
"""The time in which a copy must greet a client. One that does not is replaced."""
END_SECONDS: Final = 0.5
"""How long a take-over waits for copies that were killed. The memory of a large one takes the system longer."""
_PIECE: Final = 1 << 18

Start = Callable[[], Awaitable[ReadingProcess]]
_log = logging.getLogger("escrowmq.replication")


class ReadingCopies:
    """The copies that serve clients. `start` makes a copy. `synced` returns the LSN below which this node has all that
    was confirmed before the call, or raises OperationRefused.
    """

    def __init__(self, start: Start, synced: Callable[[], Awaitable[int]]) -> None:
        self._start = start
        self._synced = synced
        self._copies: list[ReadingProcess] = []  # oldest first
        self._reached = 0
        """The LSN up to which a copy has read. Other connections know messages that are not beyond it."""
        self._ends = 0
        """How often all copies had to end."""
        self._clients = 0
        self._starting = asyncio.Lock()
        self._idle: asyncio.TimerHandle | None = None  # of the copy that was the newest when its last client left

    async def serve(
        self, kind: str, begun: bytes, skip: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Serve a client until it, or its copy, closes the connection. `begun` is what the client has sent so far; the
        first `skip` frames of the answer have been sent to it.

        Raises ReadingError if no copy can serve it.
        """
        if self._clients >= MOST_CLIENTS:
            raise ReadingError(f"this node serves no more than {MOST_CLIENTS} connections that read; try again later")
        self._clients += 1
        try:
            await self._serve(kind, begun, skip, reader, writer)
        finally:
            self._clients -= 1

    async def _serve(
        self, kind: str, begun: bytes, skip: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        copy = await self._copy_for(kind)
        sock = copy.connect(peer_of(writer.transport))
        copy.clients += 1
        try:
            theirs, ours = await asyncio.open_unix_connection(sock=sock)
            try:
                ours.write(begun)
                await self._greeting(copy, skip, theirs)
                await _first_of(_pass_on(reader, ours), _pass_on(theirs, writer))
            finally:
                ours.close()
        finally:
            copy.clients -= 1
            self._left(copy)

    async def _greeting(self, copy: ReadingProcess, frames: int, reader: asyncio.StreamReader) -> None:
        """Drop the first frames of a copy."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                for _ in range(frames):
                    await _frame(reader)
        except TimeoutError:
            if copy in self._copies:
                _log.error("process %d has not answered for %g s, and is killed", copy.pid, ANSWER_SECONDS)
                self._end(copy)
            raise ReadingError(f"the copy for reads has not answered for {ANSWER_SECONDS:g} s; try again") from None

    async def _copy_for(self, kind: str) -> ReadingProcess:
        asked = asyncio.get_running_loop().time()
        async with self._starting:
            newest = self._newest()
            if newest is not None and (newest.lsn >= self._reached if kind == TASK else newest.asked >= asked):
                return newest
            try:
                confirmed = await self._synced()
            except OperationRefused as error:
                raise ReadingError(str(error)) from None
            if (
                newest is not None and newest is self._newest() and newest.lsn >= confirmed
            ):  # it has not ended meanwhile
                return newest
            ends = self._ends
            found = await self._start()
            if ends != self._ends:
                found.kill()
                raise ReadingError("the files of this node have changed while they were read; try again")
            self._reached = max(self._reached, found.lsn)
            _log.info("process %d serves reads from a copy of the journal up to LSN %#x", found.pid, found.lsn)
            self._copies.append(found)
            for older in self._copies[:-1]:
                self._left(older)
            if len(self._copies) > MOST:
                oldest = self._copies[0]
                _log.warning(
                    "process %d ends, since there are %d newer copies for reads: %s connect to the newest",
                    *(oldest.pid, MOST, counted(oldest.clients, "client")),
                )
                self._end(oldest)
            self._left(found)
            return found

    def _newest(self) -> ReadingProcess | None:
        for each in list(self._copies):
            if not each.is_alive:
                self._end(each)
        return self._copies[-1] if self._copies else None

    def _left(self, copy: ReadingProcess) -> None:
        """End a copy without clients: the newest one later, an older one now."""
        if copy.clients or copy not in self._copies:
            return
        if copy is self._copies[-1]:
            if self._idle is not None:
                self._idle.cancel()
            self._idle = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._end_if_idle, copy)
        else:
            self._end(copy)

    def _end_if_idle(self, copy: ReadingProcess) -> None:
        if not copy.clients and copy in self._copies:
            self._end(copy)

    def _end(self, copy: ReadingProcess) -> None:
        self._copies.remove(copy)
        copy.kill()

    def end(self) -> list[ReadingProcess]:
        """End all copies at once, also one that is being made, and return the others. Their clients can come again."""
        self._ends += 1
        self._reached = 0
        ended = list(self._copies)
        for each in ended:
            self._end(each)
        return ended

    async def stop(self) -> None:
        """End all copies, and wait for a short time until they have ended. No client may come any more."""
        ended = [asyncio.ensure_future(each.wait()) for each in self.end()]
        if ended:
            await asyncio.wait(ended, timeout=END_SECONDS)


async def _frame(reader: asyncio.StreamReader) -> None:
    """Read a frame, and drop it."""
    size = int.from_bytes((await reader.readexactly(7))[3:], "big")
    await reader.readexactly(size + 1)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_PIECE):
            writer.write(data)
            await writer.drain()


async def _first_of(*directions: Awaitable[None]) -> None:
    """Wait until one direction ends, and end the other."""
    tasks = [asyncio.ensure_future(each) for each in directions]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
