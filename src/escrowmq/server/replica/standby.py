"""The process while it is a standby: it follows the log, answers health checks, and refuses clients that do not only
read streams.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import ssl
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from escrowmq.admin.operation import Operation, OperationRefused
from escrowmq.admin.replica import refusal_text
from escrowmq.admin.socket import path as socket_path
from escrowmq.admin.socket.server import AdminServer
from escrowmq.config import Config
from escrowmq.replica.engines import SettingsWatch
from escrowmq.replica.errors import ReplicaError
from escrowmq.server.http import HttpProcess
from escrowmq.server.listener import HTTP_SCHEMES, ROCKETMQ_SCHEMES, Bound
from escrowmq.server.replica.follower import Follower
from escrowmq.server.replica.reading import ReadingCopies
from escrowmq.server.replica.reading_process import ReadingProcess
from escrowmq.server.replica.refusing import Refusing
from escrowmq.server.replica.status import described

_SYNC_SECONDS: Final = 15.0
"""How long a backup waits until this node has what was confirmed. Engines are asked for 10 s."""

_log = logging.getLogger("escrowmq.replication")


class StandbyOperations(Mapping[str, Operation]):
    """What a standby answers on the admin socket. Every other operation is refused with the leader's name."""

    def __init__(self, follower: Follower, known: Mapping[str, Operation]) -> None:
        self._follower = follower
        self._known = known

    def __getitem__(self, name: str) -> Operation:
        return self._known.get(name, self._refuse)

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    async def _refuse(self, **arguments: Any) -> None:
        raise OperationRefused(refusal_text(self._follower.view.leader_url))


class Standby:
    """A standby on the event loop. `bound` are the addresses of the broker."""

    def __init__(self, config: Config, follower: Follower, watch: SettingsWatch, bound: Sequence[Bound]) -> None:
        self._config = config
        self._follower = follower
        self._watch = watch
        self._amqp = [each for each in bound if each.scheme not in (*HTTP_SCHEMES, *ROCKETMQ_SCHEMES)]
        self._shown = [each for each in bound if each.scheme not in ROCKETMQ_SCHEMES]
        http = next((each for each in bound if each.scheme in HTTP_SCHEMES), None)
        self._http = HttpProcess(config, http.sockets, standby=True) if http is not None else None
        known = {"ping": self._ping, "replica.status": self._status, "journal.synced": self._synced}
        self._admin = AdminServer(StandbyOperations(follower, known))
        self._reading = ReadingCopies(partial(ReadingProcess.start, config), self._synced)
        serving = self._reading if config.replication.serve_reads else None
        self._refusing = Refusing(lambda: follower.view.leader_url, serving)

    async def serve(self, context: ssl.SSLContext | None) -> bool:
        """Follow until this node leads, and return True; False after a signal to stop. Raises ReplicaError, OSError."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._follower.stop)
        loop.add_signal_handler(signal.SIGHUP, lambda: None)  # its settings are read again when it leads
        await self._admin.start(socket_path.bind(self._config.data_dir))
        await self._refusing.listen(self._amqp, context, self._config.listen.backlog)
        if self._http is not None:
            self._http.start()
        self._follower.view.on_diverged = partial(self._diverged, loop)
        try:
            return await asyncio.to_thread(self._follower.run, partial(self._tell, loop))
        finally:
            self._follower.view.on_diverged = lambda: None
            self._admin.stop()
            self._refusing.stop()
            await self._reading.stop()
            if self._http is not None:
                await self._http.kill()

    def _diverged(self, loop: asyncio.AbstractEventLoop) -> None:
        """End what reads this node's files, of which only the ends change otherwise."""
        loop.call_soon_threadsafe(self._reading.end)

    def _tell(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.call_soon_threadsafe(self._followed)

    def _followed(self) -> None:
        _log.info("this node is a standby, and has read the replicated log to its end")
        for each in self._shown:
            sys.stdout.write(f"standby {each.url} data={self._config.data_dir}\n")
        sys.stdout.flush()

    async def _ping(self) -> str:
        return "standby"

    async def _synced(self) -> int:
        """See `JournalAdmin.synced`. A backup asks for it."""
        if not self._follower.view.followed_at:
            raise OperationRefused("this node still reads the replicated log")
        try:
            async with asyncio.timeout(_SYNC_SECONDS):
                return await asyncio.wrap_future(self._follower.sync())
        except (OSError, ReplicaError) as error:
            reason = str(error) or f"no answer in {_SYNC_SECONDS:g} s"
            raise OperationRefused(f"this node does not know what the leader has confirmed: {reason}") from None

    async def _status(self) -> dict[str, Any]:
        return described(self._follower, self._watch.view)
