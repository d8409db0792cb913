"""The broker with its listeners and its admin socket on the event loop, from start to stop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import logging
import os
import signal
import ssl
import sys
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final

from escrowmq.admin.replica import obstacle_to_hand_over
from escrowmq.admin.service import AdminService
from escrowmq.admin.socket import path as socket_path
from escrowmq.admin.socket.server import AdminServer
from escrowmq.config.config import Config
from escrowmq.core.broker import Broker
from escrowmq.journal.journal import Journal
from escrowmq.journal.storage import FileStorage
from escrowmq.server import listener
from escrowmq.server.auth import Authenticator
from escrowmq.server.connection import ClientConnection
from escrowmq.server.fatal import die
from escrowmq.server.handshake import TlsListener
from escrowmq.server.http import HttpProcess
from escrowmq.server.listener import HTTP_SCHEMES, ROCKETMQ_SCHEMES, Bound, port_of
from escrowmq.server.maintenance import Maintenance
from escrowmq.server.passwords import Passwords
from escrowmq.server.process import ServerProcess
from escrowmq.server.reloading import Reloading
from escrowmq.server.replica.cut_off import CutOff
from escrowmq.server.replica.disk_relief import DiskRelief
from escrowmq.server.resources import Alarms, memory_bytes, resident_bytes
from escrowmq.server.runtime import Runtime
from escrowmq.server.scram import ScramUsers
from escrowmq.server.secret_keys import SecretKeys
from escrowmq.server.start import first_start, load_definitions, warn_of_missing_user
from escrowmq.server.supervisor import Supervisor
from escrowmq.server.tokens.setting_up import token_logins
from escrowmq.server.turn import Turns
from escrowmq.wire.rocketmq.options import RocketmqOptions
from escrowmq.wire.sniff import REFUSALS, Family, amqp_family

if TYPE_CHECKING:
    from escrowmq.server.replica.leadership import Leadership

LEAVE_SECONDS: Final = 3.0
"""The time that clients have to close their connections when the broker stops."""
HAND_OVER_SECONDS: Final = 0.3
"""The same if another node is to lead."""
_SILENCE_POLL_SECONDS: Final = 0.2
GC_THRESHOLDS: Final = (5_000, 1, 100_000)
"""A young collection examines 5,000 new objects in about 0.5 ms, a middle one the survivors of three of them in 2 to
4 ms. With survivors of 60,000 objects, a middle one took 7 to 27 ms while 50,000 queues were declared. Full collections
are as rare as they can be, because no garbage is left to them.
"""

_log = logging.getLogger("escrowmq.server")


def federation_tag(identity: bytes) -> str:
    """Return the name by which clients of AMQP 0-10 tell this broker from others. It stays the same for its journal."""
    return str(uuid.UUID(bytes=hashlib.blake2b(identity, digest_size=16, person=b"federation").digest()))


class Server:
    """A broker with its listeners. It is created and used on the event loop."""

    def __init__(
        self,
        config: Config,
        storage: FileStorage,
        journal: Journal,
        broker: Broker,
        bound: Sequence[Bound],
        leadership: Leadership | None = None,
    ) -> None:
        """`bound` are the addresses to listen on, also that of the HTTP process. `leadership` is that on a replicated
        log.
        """
        loop = asyncio.get_running_loop()
        self._config = config
        self._bound = [each for each in bound if each.scheme not in HTTP_SCHEMES]
        self._journal = journal
        self._leadership = leadership
        self._password_threads = ThreadPoolExecutor(2, thread_name_prefix="password")
        self._passwords = Passwords(config.security.mechanisms, config.security.scram_iterations)
        self._scram = ScramUsers(broker.access, self._passwords, journal.identity)
        self._files = ThreadPoolExecutor(1, thread_name_prefix="journal-files")
        self._turns = Turns(loop, broker, journal, withheld=leadership.is_silent if leadership is not None else None)
        self._tokens = token_logins(config.tokens, loop, self._turns.post)
        memory_limit = config.memory.high_watermark_bytes(memory_bytes())
        alarms = Alarms(memory_limit, config.disk.free_limit, resident_bytes, storage.free_bytes)
        self._runtime = Runtime(
            self._turns,
            self._authenticator(broker),
            alarms,
            config.limits,
            config.security.mechanisms,
            config.memory.grace_seconds,
            config.compatibility.rabbitmq_version,
            config.security.websocket_origins,
            rocketmq_options(config, bound),
            federation_tag(journal.identity),
        )
        self._maintenance = Maintenance(
            loop,
            self._turns,
            self._files,
            snapshot_bytes=config.journal.snapshot_bytes,
            compaction_ratio=config.journal.compaction_ratio,
            short=lambda: alarms.disk,
            trims_prefix=leadership is not None,
            files_changed=self._ship,
        )
        if leadership is not None:
            CutOff(self._turns, self._runtime, leadership.patience_seconds)
            DiskRelief(self._turns, alarms, partial(_obstacle, leadership), leadership.hand_over)
        self._process = ServerProcess(
            self._runtime,
            self._maintenance,
            self._password_threads,
            self._passwords,
            data_dir=config.data_dir,
            free_bytes=storage.free_bytes,
            tokens=self._tokens,
            leadership=leadership,
        )
        self._supervisor = Supervisor.of(os.environ)
        self._operations = AdminService(self._process).operations
        self._admin = AdminServer(self._operations)
        self._listeners: list[asyncio.Server | TlsListener] = []
        self._http_bound = next((each for each in bound if each.scheme in HTTP_SCHEMES), None)
        self._http: HttpProcess | None = None
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._leave_seconds = LEAVE_SECONDS

    async def serve(self, reloading: Reloading) -> None:
        """Listen, print `ready`, and stop in order after a signal. Raises OSError if an address cannot be used.

        SIGHUP applies the settings of `reloading`.
        """
        if self._leadership is not None:
            self._leadership.child = lambda: None if self._http is None else self._http.give_up()
            self._leadership.stop = self._hand_over
            self._leadership.fault = reloading.fault
            self._ship(self._journal.snapshot_lsn, self._journal.oldest_lsn)
        self._turns.begin()
        first_start(self._runtime.broker, self._config.security, self._passwords)
        self._scram.warn()
        if self._config.rocketmq.enabled:
            warn_of_missing_user(self._runtime.broker, "rocketmq.anonymous_user", self._config.rocketmq.anonymous_user)
        await self._turns.synced()
        if self._config.load_definitions is not None:
            await load_definitions(self._config.load_definitions, self._operations)
        try:
            await self._open_admin()
            await self._listen(reloading.context)
        except OSError:
            await self._finish()
            raise
        self._handle_signals(partial(self._reload, reloading))
        self._turns.begin()
        self._runtime.ticker.start()
        _tune_collector()
        for each in self._bound:
            sys.stdout.write(f"ready {each.url} data={self._config.data_dir}\n")
        if self._http_bound is not None:
            config = self._config
            self._http = HttpProcess(config, self._http_bound.sockets)
            self._http.start()
            self._process.listeners.append(self._http_bound.url)
            sys.stdout.write(f"ready {self._http_bound.url} data={self._config.data_dir}\n")
        sys.stdout.flush()
        if self._leadership is not None:
            self._leadership.serve()
        self._supervisor.ready(", ".join(each.url for each in self._bound))
        await self._stop.wait()
        if self._leadership is not None and self._leadership.handed_over:
            self._supervisor.hands_over()
        else:
            self._supervisor.stopping()
        await self._leave()

    # -- starting

    def _authenticator(self, broker: Broker) -> Authenticator:
        return Authenticator(
            broker.access,
            self._password_threads,
            self._turns.post,
            self._scram,
            broker.directory.record_access,
            SecretKeys(self._config.data_dir),
            self._tokens,
            guest_loopback_only=self._config.security.guest_loopback_only,
            anonymous_user=self._config.security.anonymous_user,
            patience=self._config.limits.unauthenticated_seconds,
        )

    async def _listen(self, context: ssl.SSLContext | None) -> None:
        amqp = amqp_family(REFUSALS[self._config.compatibility.unknown_header])
        for each in self._bound:
            rocketmq = each.scheme in ROCKETMQ_SCHEMES
            family = _rocketmq_family() if rocketmq else amqp
            self._listeners += await listener.listen(
                each,
                partial(ClientConnection, self._runtime, family),
                backlog=self._config.listen.backlog,
                context=context if rocketmq or each.scheme == "amqps" else None,
                login=self._config.limits.unauthenticated_seconds,
                plain=rocketmq,
            )
            self._process.listeners.append(each.url)
            _log.info("listening on %s", each.url)

    async def _open_admin(self) -> None:
        try:
            await self._admin.start(socket_path.bind(self._config.data_dir))
        except OSError as error:
            _log.error(
                "the admin socket cannot be opened, so commands such as `escrowmq status` cannot reach this broker: %s",
                error,
            )

    def _renew(self, context: ssl.SSLContext) -> None:
        for each in self._listeners:
            if isinstance(each, TlsListener):
                each.renew(context)

    def _handle_signals(self, reload: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, reload)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._asked_to_stop, number)

    def _reload(self, reloading: Reloading) -> None:
        reloading.reload(self._renew)
        if self._tokens is not None:
            self._tokens.reload()
        if self._http is not None:
            self._http.reload(reloading.config)

    def _ship(self, lsn: int, oldest_lsn: int) -> None:
        """Let nodes that begin to follow have the newest snapshot, and know which segments it needs."""
        if self._leadership is not None:
            self._leadership.snapshots.ship(lsn, oldest_lsn)

    def _hand_over(self) -> None:
        """Stop, and leave the clients little time, since another node cannot serve them before."""
        self._leave_seconds = HAND_OVER_SECONDS
        self._stop.set()

    def _asked_to_stop(self, number: signal.Signals) -> None:
        again, leadership = self._stop.is_set(), self._leadership
        if leadership is not None:
            again = again and (leadership.ends or not leadership.handed_over)  # a hand-over is no first signal
            leadership.ends = True
        if again:
            self._hurry.set()
            if leadership is not None:
                self._end_if_silent(leadership)
        self._stop.set()
        _log.info("%s: stopping%s", number.name, ", at once" if self._hurry.is_set() else "")

    # -- stopping

    def _end_if_silent(self, leadership: Leadership) -> None:
        """Wait no longer for the replicated log if it does not answer, now or later."""
        if leadership.is_silent():
            die("this node stops without an answer of the replicated log, which may never come")
        asyncio.get_running_loop().call_later(_SILENCE_POLL_SECONDS, self._end_if_silent, leadership)

    async def _leave(self) -> None:
        """Accept no more clients, close connections, sync the journal, and take a snapshot for the next start."""
        if self._leadership is not None:
            await asyncio.to_thread(self._leadership.shipper.leave)
        for server in self._listeners:
            server.close()
        if self._http is not None:
            await self._http.stop()
        self._runtime.shut("broker forced connection closure with reason 'shutdown'")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._leave_seconds):
                await _first_of(self._runtime.all_closed, self._hurry)
        self._runtime.stop()
        await self._runtime.all_closed.wait()
        await self._finish()

    async def _finish(self) -> None:
        self._admin.stop()
        if self._tokens is not None:
            self._tokens.stop()
        await self._turns.synced()
        fault = await self._maintenance.rest(snapshot=self._leadership is None)
        if fault:
            _log.error("the last snapshot failed, so the next start takes longer: %s", fault)
        await self._turns.synced()
        self._turns.stop()
        self._files.shutdown()
        self._password_threads.shutdown(cancel_futures=True)
        self._journal.close()
        if self._leadership is not None:
            await asyncio.to_thread(self._leadership.resign)  # a second signal must be heard meanwhile
        self._supervisor.rest()
        with contextlib.suppress(OSError):
            (self._config.data_dir / socket_path.NAME).unlink(missing_ok=True)
        _log.info("stopped")


def _obstacle(leadership: Leadership) -> str:
    """Return why this node cannot hand over now; nothing if it can."""
    return obstacle_to_hand_over(leadership.status()) or leadership.fault()


def rocketmq_options(config: Config, bound: Sequence[Bound]) -> RocketmqOptions:
    """Return the settings for RocketMQ. The broker's port is the one that is bound."""
    section = config.rocketmq
    ports = [port_of(each.sockets[0]) for each in bound if each.scheme == ROCKETMQ_SCHEMES[1]]
    return RocketmqOptions(
        vhost=section.vhost,
        anonymous_user=section.anonymous_user,
        guest_loopback_only=config.security.guest_loopback_only,
        auto_create=section.auto_create_topics,
        partitions=section.partitions,
        cluster=section.cluster,
        broker_name=section.broker_name,
        advertised_host=section.advertised_host,
        broker_port=ports[0] if ports else section.broker_address.port,
    )


def _rocketmq_family() -> Family:
    """Import the protocols of RocketMQ, which take a tenth of the time of a start and of its memory, for brokers that
    serve them.
    """
    from escrowmq.wire.rocketmq.sniff import ROCKETMQ_FAMILY

    return ROCKETMQ_FAMILY


async def _first_of(*events: asyncio.Event) -> None:
    tasks = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


def _tune_collector() -> None:
    """Collect garbage rarely: reference counts free messages and closed connections."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()
