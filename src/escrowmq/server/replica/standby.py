"""The process while it is a standby: it waits for the log's engine, follows the log, answers health checks, and refuses
clients that do not only read streams.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar, cast

from escrowmq.admin.operation import Operation, OperationRefused
from escrowmq.admin.replica import refusal_text
from escrowmq.admin.socket import path as socket_path
from escrowmq.admin.socket.server import AdminServer
from escrowmq.config.config import Config
from escrowmq.replica.engines import EngineLog, SettingsWatch
from escrowmq.replica.errors import ReplicaError
from escrowmq.server.fatal import die
from escrowmq.server.http import HttpProcess
from escrowmq.server.listener import HTTP_SCHEMES, ROCKETMQ_SCHEMES, Bound
from escrowmq.server.reloading import Reloading
from escrowmq.server.replica.follower import Follower
from escrowmq.server.replica.names import node_names
from escrowmq.server.replica.reading import ReadingCopies
from escrowmq.server.replica.reading_process import ReadingProcess
from escrowmq.server.replica.refusing import Refusing
from escrowmq.server.replica.status import Unreached, described
from escrowmq.urls import redacted

T = TypeVar("T")
_RETRY_SECONDS: Final = 1.0
_SYNC_SECONDS: Final = 15.0
"""How long a backup waits until this node has what was confirmed. Engines are asked for 10 s."""

_log = logging.getLogger("escrowmq.replication")


class Followed(NamedTuple):
    """A log that has been reached."""

    log: EngineLog
    follower: Follower
    watch: SettingsWatch

    def close(self) -> None:
        """Be done with the log."""
        self.watch.stop()
        self.log.close()


class StandbyOperations(Mapping[str, Operation]):
    """What a standby answers on the admin socket. Every other operation is refused with the leader's name."""

    def __init__(self, leader_url: Callable[[], str], known: Mapping[str, Operation]) -> None:
        self._leader_url = leader_url
        self._known = known

    def __getitem__(self, name: str) -> Operation:
        return self._known.get(name, self._refuse)

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    async def _refuse(self, **arguments: Any) -> None:
        raise OperationRefused(refusal_text(self._leader_url()))


class Standby:
    """A standby on the event loop. `bound` are the addresses of the broker. `reach` opens the log or raises OSError; it
    is called on a thread. `on_followed` is called when the log has been read to its end for the first time.
    """

    def __init__(
        self,
        config: Config,
        bound: Sequence[Bound],
        reach: Callable[[], Followed],
        on_followed: Callable[[], None] = lambda: None,
    ) -> None:
        self._config = config
        self._reach = reach
        self._on_followed = on_followed
        self._followed: Followed | None = None
        self._unreached = Unreached(*node_names(config.replication, bound), time.monotonic())
        self._stop = asyncio.Event()
        self._amqp = [each for each in bound if each.scheme not in (*HTTP_SCHEMES, *ROCKETMQ_SCHEMES)]
        self._shown = [each for each in bound if each.scheme not in ROCKETMQ_SCHEMES]
        http = next((each for each in bound if each.scheme in HTTP_SCHEMES), None)
        self._http = HttpProcess(config, http.sockets, standby=True) if http is not None else None
        known = {"ping": self._ping, "replica.status": self._status, "journal.synced": self._synced}
        self._admin = AdminServer(StandbyOperations(self._leader_url, known))
        self._reading = ReadingCopies(partial(ReadingProcess.start, config), self._synced)
        serving = self._reading if config.replication.serve_reads else None
        self._refusing = Refusing(self._leader_url, serving)

    async def serve(self, reloading: Reloading) -> Followed | None:
        """Follow until this node leads, and return what it has followed; None after a signal to stop.

        SIGHUP applies the settings of `reloading`. Raises ReplicaError and OSError.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._asked_to_stop, number)
        loop.add_signal_handler(signal.SIGHUP, self._reload, reloading)
        await self._admin.start(socket_path.bind(self._config.data_dir))
        await self._refusing.listen(self._amqp, reloading.context, self._config.listen.backlog)
        if self._http is not None:
            self._http.start()
        try:
            self._followed = await self._reached()
            if self._followed is None:
                return None
            if self._stop.is_set():  # the signal came while the log was opened
                self._followed.follower.stop()
            return await self._follow(self._followed)
        finally:
            _let_signals_end(loop)
            self._admin.stop()
            self._refusing.stop()
            await self._reading.stop()
            if self._http is not None:
                await self._http.kill()

    def _reload(self, reloading: Reloading) -> None:
        reloading.reload(self._refusing.renew)
        if self._http is not None:
            self._http.reload(reloading.config)

    def _asked_to_stop(self, number: signal.Signals) -> None:
        if self._stop.is_set():  # the engine may be asked for 10 s
            die("this standby stops without an answer of the replicated log")
        _log.info("%s: stopping", number.name)
        self._stop.set()
        if self._followed is not None:
            self._followed.follower.stop()

    def _leader_url(self) -> str:
        return self._followed.follower.view.leader_url if self._followed is not None else ""

    async def _reached(self) -> Followed | None:
        """Open the log, and wait until its engine can be reached; return None after a signal to stop."""
        _log.info("this node opens the replicated log %s", redacted(self._config.replication.url.get_secret_value()))
        while not self._stop.is_set():
            opened = on_thread(self._reach)
            stopped = asyncio.ensure_future(self._stop.wait())
            either: set[asyncio.Future[Any]] = {opened, stopped}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            if not opened.done():
                opened.cancel()
                return None
            try:
                return opened.result()
            except OSError as error:
                if not self._unreached.fault:
                    _log.warning("the replicated log cannot be used yet, and is tried again: %s", error)
                self._unreached = self._unreached._replace(fault=str(error))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_RETRY_SECONDS):
                    await self._stop.wait()
        return None

    async def _follow(self, followed: Followed) -> Followed | None:
        loop, follower = asyncio.get_running_loop(), followed.follower
        follower.view.on_diverged = partial(self._diverged, loop)
        try:
            leads = await asyncio.to_thread(follower.run, partial(self._tell, loop))
        except BaseException:
            followed.close()
            raise
        finally:
            follower.view.on_diverged = lambda: None
        _let_signals_end(loop)
        if leads and not self._stop.is_set():
            return followed
        if leads:
            with contextlib.suppress(OSError, ReplicaError):  # others notice the silence then
                await asyncio.to_thread(follower.leader.resign)
        followed.close()
        return None

    def _diverged(self, loop: asyncio.AbstractEventLoop) -> None:
        """End what reads this node's files, of which only the ends change otherwise."""
        loop.call_soon_threadsafe(self._reading.end)

    def _tell(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.call_soon_threadsafe(self._told)

    def _told(self) -> None:
        _log.info("this node is a standby, and has read the replicated log to its end")
        for each in self._shown:
            sys.stdout.write(f"standby {each.url} data={self._config.data_dir}\n")
        sys.stdout.flush()
        self._on_followed()

    async def _ping(self) -> str:
        return "standby"

    async def _synced(self) -> int:
        """See `JournalAdmin.synced`. A backup asks for it."""
        if self._followed is None or not self._followed.follower.view.followed_at:
            raise OperationRefused("this node still reads the replicated log")
        try:
            async with asyncio.timeout(_SYNC_SECONDS):
                return await asyncio.wrap_future(self._followed.follower.sync())
        except (OSError, ReplicaError) as error:
            reason = str(error) or f"no answer in {_SYNC_SECONDS:g} s"
            raise OperationRefused(f"this node does not know what the leader has confirmed: {reason}") from None

    async def _status(self) -> dict[str, Any]:
        if self._followed is None:
            return self._unreached.described()
        return described(self._followed.follower, self._followed.watch.view)


def _let_signals_end(loop: asyncio.AbstractEventLoop) -> None:
    """Let a signal end the process from now on, as while a broker starts. A loop that has ended would swallow it."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.remove_signal_handler(number)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def on_thread(call: Callable[[], T]) -> asyncio.Future[T]:
    """Return the result of a call on a thread that the process does not wait for when it ends."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def done(found: T | None, error: Exception | None) -> None:
        if result.cancelled():
            return
        if error is not None:
            result.set_exception(error)
        else:
            result.set_result(cast("T", found))

    def run() -> None:
        try:
            outcome: tuple[T | None, Exception | None] = call(), None
        except Exception as error:  # noqa: BLE001 - raised where the result is awaited
            outcome = None, error
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(done, *outcome)

    threading.Thread(target=run, name="replicated-log", daemon=True).start()
    return result
