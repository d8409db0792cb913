"""One process that serves reads of streams on a standby, as the standby sees it. Its other side is `reading_broker`."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from typing import Final, Self

from escrowmq.config.config import Config
from escrowmq.server.replica.reading_broker import SECTIONS, introduction
from escrowmq.wire.endpoint import Peer

MODULE: Final = "escrowmq.server.replica.reading_broker"
START_SECONDS: Final = 300.0
"""The time in which the process must have read the journal."""
_PASSED: Final = b"c"


class ReadingError(Exception):
    """The process could not be started, or has ended. The text says why, for the client."""


class ReadingProcess:
    """A process that has read the journal up to `lsn`, at a time after `asked`, which is one of the event loop."""

    def __init__(self, process: asyncio.subprocess.Process, control: socket.socket, asked: float) -> None:
        self.asked = asked
        self.lsn = 0
        self.clients = 0
        """The number of connections to it."""
        self._process = process
        control.setblocking(False)  # a process that hangs must not hold up the standby
        self._control = control

    @classmethod
    async def start(cls, config: Config) -> Self:
        """Start a process, and wait until it serves. A cancellation kills it. Raises ReadingError."""
        asked = asyncio.get_running_loop().time()
        control, theirs = socket.socketpair()
        try:
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", MODULE, str(theirs.fileno())),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,  # so that the signals of a terminal do not reach it
                )
        except OSError as error:
            control.close()
            raise ReadingError(f"the copy for reads cannot be served: {error}") from None
        found = cls(process, control, asked)
        try:
            async with asyncio.timeout(START_SECONDS):
                found.lsn = await found._learn(config)
        except BaseException as error:
            found.kill()
            await found.wait()
            if isinstance(error, OSError | ValueError):  # it took too long, or has ended
                raise ReadingError("the copy for reads cannot be made; the log of this node says why") from None
            raise
        return found

    async def _learn(self, config: Config) -> int:
        """Give the process its configuration, and return the LSN that it has read."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(config.model_dump_json(include=set(SECTIONS)).encode())
        self._process.stdin.close()
        return int(await self._process.stdout.readline())

    @property
    def is_alive(self) -> bool:
        """Whether clients can be passed to it."""
        return self._process.returncode is None

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def connect(self, peer: Peer) -> socket.socket:
        """Return a socket on which the process serves `peer`. Raises ReadingError if it has ended."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                ours.sendall(introduction(peer))
                socket.send_fds(self._control, [_PASSED], [theirs.fileno()])
            except OSError as error:
                ours.close()
                raise ReadingError(f"the copy for reads is not served any more: {error}") from None
        ours.setblocking(False)
        return ours

    def kill(self) -> None:
        """End the process at once. `wait` returns when it has ended."""
        self._control.close()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def wait(self) -> None:
        """Wait until the process has ended."""
        await self._process.wait()
