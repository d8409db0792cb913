"""The broker process as the admin service sees it: implements `admin.ports.BrokerProcess`."""

from __future__ import annotations

import asyncio
import hashlib
import os
import platform
import resource
import socket
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from escrowmq import __version__
from escrowmq.admin.action import record_action
from escrowmq.admin.events import LiveEvents
from escrowmq.admin.operation import OperationRefused
from escrowmq.admin.ports import OpenConnection
from escrowmq.core.access.grant import Grant
from escrowmq.core.access.permissions import PasswordHashes
from escrowmq.core.broker import Broker
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.watch import ChangeWatch
from escrowmq.server.listener import is_loopback
from escrowmq.server.maintenance import Maintenance
from escrowmq.server.operator_messages import composed, delivered
from escrowmq.server.passwords import Passwords
from escrowmq.server.readable import readable
from escrowmq.server.resources import resident_bytes
from escrowmq.server.runtime import Runtime
from escrowmq.server.tokens.logins import TokenLogins
from escrowmq.wire.endpoint import Peer, Verdict
from escrowmq.wire.sasl import TOKEN, Credentials

if TYPE_CHECKING:
    from escrowmq.server.replica.leadership import Leadership

T = TypeVar("T")
PROOF_SECONDS: Final = 10.0
"""How long an answer to an operator waits for a proof that this node leads."""
_PROC: Final = Path("/proc/self/fd").is_dir()


class ServerProcess:
    """Passwords are hashed by `executor`; `free_bytes` returns the free space of the disk."""

    def __init__(
        self,
        runtime: Runtime,
        maintenance: Maintenance,
        executor: Executor,
        passwords: Passwords,
        *,
        data_dir: Path,
        free_bytes: Callable[[], int],
        tokens: TokenLogins | None = None,
        leadership: Leadership | None = None,
    ) -> None:
        self.broker: Broker = runtime.broker
        self.listeners: list[str] = []
        self._runtime = runtime
        self._turns = runtime.turns
        self._maintenance = maintenance
        self._executor = executor
        self._passwords = passwords
        self._data_dir = data_dir
        self._free_bytes = free_bytes
        self._tokens = tokens
        self._leadership = leadership
        self._started = time.monotonic()

    @property
    def connections(self) -> Collection[OpenConnection]:
        """See `BrokerProcess.connections`."""
        return self._runtime.connections

    def watch_connections(self, watch: ChangeWatch[OpenConnection]) -> None:
        """See `BrokerProcess.watch_connections`."""
        self._runtime.connection_watches.append(watch)

    @property
    def live_events(self) -> LiveEvents:
        """See `BrokerProcess.live_events`."""
        return self._runtime.live_events

    @property
    def synced_lsn(self) -> int:
        """See `BrokerProcess.synced_lsn`."""
        return self._turns.journal.synced_lsn

    @property
    def arguments_size(self) -> int:
        """See `BrokerProcess.arguments_size`."""
        return self._runtime.limits.arguments

    def replication(self) -> dict[str, Any] | None:
        """See `BrokerProcess.replication`."""
        return None if self._leadership is None else self._leadership.status()

    @property
    def cut_off(self) -> bool:
        """See `BrokerProcess.cut_off`."""
        return self._runtime.cut_off

    def hand_over(self) -> None:
        """See `BrokerProcess.hand_over`."""
        assert self._leadership is not None
        if fault := self._leadership.fault():
            raise OperationRefused(f"this node could not begin again as a standby, because of its settings: {fault}")
        self._leadership.hand_over()

    def begin(self) -> None:
        """See `BrokerProcess.begin`."""
        self._turns.begin()

    async def turn(self) -> None:
        """See `BrokerProcess.turn`."""
        self._turns.begin()
        await asyncio.sleep(0)  # the end of the turn precedes this in the event loop

    async def durably(self, change: Callable[[], T]) -> T:
        """See `BrokerProcess.durably`."""
        self._turns.begin()
        result = change()
        record_action(self.broker)
        synced: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        journal = self._turns.journal
        lsn = journal.proof_lsn(journal.end_lsn)
        self._turns.when_synced(lsn, lambda: None if synced.done() else synced.set_result(None))
        await synced
        return result

    async def prove(self) -> None:
        """See `BrokerProcess.prove`."""
        if self._leadership is None:
            return
        self._turns.begin()
        proved: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        lsn = self._turns.journal.proof_lsn(0)
        self._turns.when_synced(lsn, lambda: None if proved.done() else proved.set_result(None))
        try:
            async with asyncio.timeout(PROOF_SECONDS):
                await proved
        except TimeoutError:
            text = f"the replicated log has not answered for {PROOF_SECONDS:g} s, so this node may lead no more"
            text += "; try again when `escrowmq replica status` shows that it answers"
            raise OperationRefused(text) from None

    def secret_key(self, access_key: str) -> str:
        """See `BrokerProcess.secret_key`."""
        return self._runtime.secret_key(access_key).decode()

    async def hash_password(self, password: str) -> PasswordHashes:
        """See `BrokerProcess.hash_password`."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, self._passwords.hashes, password)

    async def snapshot(self, *, compact: bool) -> str:
        """See `BrokerProcess.snapshot`."""
        done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._maintenance.snapshot_now(lambda fault: None if done.done() else done.set_result(fault), compact=compact)
        return await done

    async def log_in(self, address: str, port: int, user: str, password: str) -> str:
        """See `BrokerProcess.log_in`."""
        verdict = await self._judged(address, port, Credentials("PLAIN", user, password))
        return "" if verdict.user is not None else verdict.reason

    async def log_in_by_token(self, address: str, port: int, token: str) -> Grant | str:
        """See `BrokerProcess.log_in_by_token`."""
        verdict = await self._judged(address, port, Credentials(TOKEN, "", token))
        return verdict.grant if verdict.grant is not None else verdict.reason

    async def _judged(self, address: str, port: int, credentials: Credentials) -> Verdict:
        judged: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()

        def done(verdict: Verdict) -> None:
            if not judged.done():
                judged.set_result(verdict)

        self._turns.begin()
        peer = Peer(address, port, is_loopback(address), is_request=True)
        self._runtime.check_login(peer, credentials, done)
        return await judged

    @property
    def host(self) -> str:
        """See `BrokerProcess.host`."""
        return socket.gethostname()

    def counters(self) -> dict[str, Any]:
        """See `BrokerProcess.counters`."""
        stats = self._turns.journal.stats
        return {
            "host": self.host,
            "identity": hashlib.blake2b(self._turns.journal.identity, digest_size=16, person=b"metrics").hexdigest(),
            "blocked_publishers": self._runtime.blocked_publishers,
            "publishers": self._runtime.publishers,
            "open_descriptors": len(os.listdir("/proc/self/fd")) if _PROC else 0,  # noqa: PTH208 - names are enough
            "most_descriptors": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            "sync_us_total": stats.sync_us_total,
            "sync_us_buckets": stats.sync_us_buckets,
        }

    def readable(self, envelope: Envelope, content: bytes, *, whole: bool) -> dict[str, Any]:
        """See `BrokerProcess.readable`."""
        return readable(envelope, content, whole=whole)

    def composed(self, exchange: str, routing_key: str, properties: Mapping[str, Any], user: str) -> Envelope:
        """See `BrokerProcess.composed`."""
        return composed(exchange, routing_key, properties, user, self._runtime.limits.header_size)

    def delivered(self, envelope: Envelope, content: bytes) -> tuple[str, dict[str, Any], bytes]:
        """See `BrokerProcess.delivered`."""
        return delivered(envelope, content)

    def figures(self) -> dict[str, Any]:
        """See `BrokerProcess.figures`."""
        runtime, alarms, unavailable = self._runtime, self._runtime.alarms, self.broker.engine.unavailable.reasons
        return {
            "version": __version__,
            "python": platform.python_version(),
            "event_loop": type(asyncio.get_running_loop()).__module__.partition(".")[0],
            "pid": os.getpid(),
            "data_dir": str(self._data_dir),
            "listeners": self.listeners,
            "uptime_seconds": round(time.monotonic() - self._started, 1),
            "turns": self._turns.count,
            "clock_behind_seconds": round(self.broker.engine.behind_ms / 1000, 1),
            "connections": len(runtime.connections),
            "connections_accepted": runtime.accepted,
            "alarms": [name for name in ("memory", "disk") if getattr(alarms, name)],
            "unavailable_queues": len(unavailable),
            "memory": {"resident_bytes": resident_bytes(), "limit_bytes": alarms.memory_limit},
            "disk": {"free_bytes": self._free_bytes(), "limit_bytes": alarms.disk_limit},
            "journal": self._journal_figures(),
            "tokens": self._tokens.figures() if self._tokens is not None else None,
        }

    def _journal_figures(self) -> dict[str, Any]:
        journal = self._turns.journal
        figures = asdict(journal.stats)
        del figures["sync_us_buckets"]
        return figures | {
            "sync_us_median": journal.stats.sync_us_quantile(0.5),
            "sync_us_p99": journal.stats.sync_us_quantile(0.99),
            "end_lsn": journal.end_lsn,
            "synced_lsn": journal.synced_lsn,
            "snapshot_lsn": journal.snapshot_lsn,
            "unwritten_bytes": journal.pending_bytes,
            "maintenance": self._maintenance.stage.name.lower(),
            "capture_ms_longest": round(self._maintenance.longest_capture_ms, 1),
        }
