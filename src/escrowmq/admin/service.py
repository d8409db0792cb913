"""What the admin socket can do: users, virtual hosts, permissions, and a look at what the broker is doing.

A change is answered when its record is on disk.
"""

from __future__ import annotations

import asyncio
import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from escrowmq import __version__
from escrowmq.admin.operation import Command, OperationRefused
from escrowmq.admin.reservations import ReservationAdmin
from escrowmq.admin.transactions import NOTHING_IN_DOUBT, TransactionAdmin
from escrowmq.core.access.access import Access
from escrowmq.core.access.permissions import Entry, Permission, TopicPermission
from escrowmq.core.broker import Broker
from escrowmq.server.auth import hash_password
from escrowmq.server.connection import ClientConnection
from escrowmq.server.maintenance import Maintenance
from escrowmq.server.resources import resident_bytes
from escrowmq.server.runtime import Runtime

T = TypeVar("T")


class AdminService:
    """The commands by name (`commands`); arguments are keywords of the methods."""

    def __init__(
        self,
        runtime: Runtime,
        maintenance: Maintenance,
        executor: Executor,
        *,
        data_dir: Path,
        free_bytes: Callable[[], int],
    ) -> None:
        self._runtime = runtime
        self._turns = runtime.turns
        self._broker: Broker = runtime.broker
        self._maintenance = maintenance
        self._executor = executor
        self._data_dir = data_dir
        self._free_bytes = free_bytes
        self._started = time.monotonic()
        self._transactions = TransactionAdmin(runtime.broker, self._durably)
        self._reservations = ReservationAdmin(runtime.broker, self._durably)
        self.listeners: list[str] = []
        self.commands: Mapping[str, Command] = {
            "status": self.status,
            "queue.list": self.list_queues,
            "connection.list": self.list_connections,
            "connection.close": self.close_connection,
            "user.list": self.list_users,
            "user.add": self.add_user,
            "user.delete": self.delete_user,
            "user.password": self.set_password,
            "user.tags": self.set_tags,
            "vhost.list": self.list_vhosts,
            "vhost.add": self.add_vhost,
            "vhost.delete": self.delete_vhost,
            "permission.list": self.list_permissions,
            "permission.set": self.set_permission,
            "permission.clear": self.clear_permission,
            "topic.list": self.list_topic_permissions,
            "topic.set": self.set_topic_permission,
            "topic.clear": self.clear_topic_permission,
            "journal.snapshot": self.snapshot,
            "journal.compact": self.compact,
            **self._transactions.commands,
            **self._reservations.commands,
        }

    # -- looking

    async def status(self) -> dict[str, Any]:
        """Everything in numbers."""
        runtime, journal, alarms = self._runtime, self._turns.journal, self._runtime.alarms
        stats = asdict(journal.stats)
        del stats["sync_us_buckets"]
        stats |= {
            "sync_us_median": journal.stats.sync_us_quantile(0.5),
            "sync_us_p99": journal.stats.sync_us_quantile(0.99),
            "end_lsn": journal.end_lsn,
            "synced_lsn": journal.synced_lsn,
            "snapshot_lsn": journal.snapshot_lsn,
            "unwritten_bytes": journal.pending_bytes,
            "maintenance": self._maintenance.stage.name.lower(),
            "capture_ms_longest": round(self._maintenance.longest_capture_ms, 1),
        }
        return {
            "version": __version__,
            "python": platform.python_version(),
            "event_loop": type(asyncio.get_running_loop()).__module__.partition(".")[0],
            "pid": os.getpid(),
            "data_dir": str(self._data_dir),
            "listeners": self.listeners,
            "uptime_seconds": round(time.monotonic() - self._started, 1),
            "turns": self._turns.count,
            "connections": len(runtime.connections),
            "connections_accepted": runtime.accepted,
            "alarms": [name for name in ("memory", "disk") if getattr(alarms, name)],
            "memory": {"resident_bytes": resident_bytes(), "limit_bytes": alarms.memory_limit},
            "disk": {"free_bytes": self._free_bytes(), "limit_bytes": alarms.disk_limit},
            "queues": await self.list_queues(),
            "transactions": self._transactions.summary(),
            "journal": stats,
        }

    async def list_queues(self, vhost: str | None = None) -> list[dict[str, Any]]:
        """Every queue, or those of one virtual host."""
        self._known(None, vhost)
        vhosts = self._broker.vhosts.values() if vhost is None else [self._broker.vhost(vhost)]
        in_doubt = self._transactions.by_queue()
        return [
            {
                "vhost": queue.vhost,
                "name": queue.name,
                "type": queue.options.queue_type,
                "durable": queue.durable,
                "exclusive": queue.exclusive,
                "auto_delete": queue.auto_delete,
                "ready": queue.ready,
                "unsettled": queue.unsettled,
                "held": sum(map(len, queue.reservations.values())),
                **in_doubt.get((queue.vhost, queue.name), NOTHING_IN_DOUBT),
                "consumers": len(queue.consumers),
                "arguments": dict(queue.arguments),
            }
            for each in vhosts
            for queue in each.queues.values()
        ]

    async def list_connections(self) -> list[dict[str, Any]]:
        """Every connection, those that have not said a word too."""
        return [_described(connection, self._broker.now) for connection in self._runtime.connections]

    async def close_connection(self, peer: str, reason: str = "closed by an operator") -> None:
        """Close the connection of `peer`, HOST:PORT."""
        self._turns.begin()
        if not self._close(lambda connection: str(connection.peer) == peer, reason):
            raise OperationRefused(f"no connection from {peer}")

    # -- users

    async def list_users(self) -> list[dict[str, Any]]:
        return [
            {"name": user.name, "tags": list(user.tags), "password": bool(user.password_hash)}
            for user in self._access.users.values()
        ]

    async def add_user(self, name: str, password: str | None = None, tags: Iterable[str] = ()) -> None:
        """A user without a password can only come with a certificate."""
        if name in self._access.users:
            raise OperationRefused(f"user '{name}' already exists")
        password_hash = await self._hash(password)
        await self._set(lambda: self._access.add_user(name, password_hash, tuple(tags)))

    async def delete_user(self, name: str) -> None:
        """Permissions go with the user, and connections."""
        await self._clear(lambda: self._access.remove_user(name))
        self._turns.begin()
        self._close(lambda connection: connection.user == name, f"user '{name}' was deleted")

    async def set_password(self, name: str, password: str | None = None) -> None:
        self._access.user(name)
        password_hash = await self._hash(password)
        await self._set(lambda: self._access.set_password(name, password_hash))

    async def set_tags(self, name: str, tags: Iterable[str]) -> None:
        await self._set(lambda: self._access.set_tags(name, tuple(tags)))

    # -- virtual hosts

    async def list_vhosts(self) -> list[dict[str, Any]]:
        return [{"name": vhost.name, "queues": len(vhost.queues)} for vhost in self._broker.vhosts.values()]

    async def add_vhost(self, name: str) -> None:
        def change() -> None:
            if not self._broker.add_vhost(name):
                raise OperationRefused(f"vhost '{name}' already exists")

        await self._durably(change)

    async def delete_vhost(self, name: str) -> None:
        """Everything in it goes too: queues with their messages, exchanges, permissions, connections."""
        self._known(None, name)
        self._turns.begin()
        self._close(lambda connection: connection.vhost == name, f"vhost '{name}' was deleted")
        await self._durably(lambda: self._broker.delete_vhost(name))

    # -- permissions

    async def list_permissions(self, user: str | None = None, vhost: str | None = None) -> list[dict[str, Any]]:
        self._known(user, vhost)
        return _matching(self._access.permissions.values(), user, vhost)

    async def set_permission(self, user: str, vhost: str, configure: str, write: str, read: str) -> None:
        await self._set(lambda: self._access.set_permission(user, vhost, configure, write, read))

    async def clear_permission(self, user: str, vhost: str) -> None:
        await self._clear(lambda: self._access.clear_permission(user, vhost))

    async def list_topic_permissions(self, user: str | None = None, vhost: str | None = None) -> list[dict[str, Any]]:
        self._known(user, vhost)
        return _matching(self._access.topic_permissions.values(), user, vhost)

    async def set_topic_permission(self, user: str, vhost: str, exchange: str, write: str, read: str) -> None:
        await self._set(lambda: self._access.set_topic_permission(user, vhost, exchange, write, read))

    async def clear_topic_permission(self, user: str, vhost: str, exchange: str | None = None) -> None:
        await self._clear(lambda: self._access.clear_topic_permission(user, vhost, exchange))

    # -- the journal

    async def snapshot(self) -> None:
        """Take a snapshot, which bounds the next recovery; dead segments are deleted after it."""
        await self._maintained(compact=False)

    async def compact(self) -> None:
        """Copy what lives in segments with anything dead in them, then take a snapshot."""
        await self._maintained(compact=True)

    async def _maintained(self, *, compact: bool) -> None:
        done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._maintenance.snapshot_now(lambda fault: None if done.done() else done.set_result(fault), compact=compact)
        if fault := await done:
            raise OperationRefused(fault)

    # -- inside

    @property
    def _access(self) -> Access:
        return self._broker.access

    def _known(self, user: str | None, vhost: str | None) -> None:
        """Raise NOT_FOUND for a filter that can find nothing, because there is no such user or virtual host."""
        if user is not None:
            self._access.user(user)
        if vhost is not None:
            self._access.vhost(vhost)

    async def _hash(self, password: str | None) -> str:
        if password is None:
            return ""
        if not password:
            raise OperationRefused("the password is empty")
        return await asyncio.get_running_loop().run_in_executor(self._executor, hash_password, password)

    async def _set(self, change: Callable[[], Entry]) -> None:
        await self._durably(lambda: self._broker.record_access(change()))

    async def _clear(self, change: Callable[[], tuple[Entry, ...]]) -> None:
        await self._durably(lambda: self._broker.record_access_removed(change()))

    async def _durably(self, change: Callable[[], T]) -> T:
        """Make a change in a turn, and wait until it is on disk."""
        self._turns.begin()
        result = change()
        synced: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turns.when_synced(self._turns.journal.end_lsn, lambda: None if synced.done() else synced.set_result(None))
        await synced
        return result

    def _close(self, which: Callable[[ClientConnection], bool], reason: str) -> int:
        closed = 0
        for connection in list(self._runtime.connections):
            if which(connection):
                closed += 1
                if connection.endpoint is None:
                    connection.abort()
                else:
                    connection.endpoint.shut(reason)
        return closed


def _matching(
    permissions: Iterable[Permission | TopicPermission], user: str | None, vhost: str | None
) -> list[dict[str, Any]]:
    return [asdict(p) for p in permissions if user in {None, p.user} and vhost in {None, p.vhost}]


def _described(connection: ClientConnection, now: int) -> dict[str, Any]:
    told = connection.endpoint.describe() if connection.endpoint is not None else {"state": "accepted"}
    return {
        **told,
        "peer": str(connection.peer),
        "seconds": max(0, now - connection.opened_ms) // 1000,
        "unsent_bytes": connection.unsent,
        "held_back_by": [pause.name.lower() for pause in connection.paused if pause.name],
    }
