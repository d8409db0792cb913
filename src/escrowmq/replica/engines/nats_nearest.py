"""Appends at the node of a NATS cluster that leads the stream, wherever that is. Other nodes take one hop more."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Final

from escrowmq.replica.engines.address import EngineAddress
from escrowmq.replica.engines.nats_appender import NatsAppender

_TEND_SECONDS: Final = 1.0
_NEAR_TURNS: Final = 2
"""The times that the connection is tended between two looks at which node leads the stream."""


class NearestAppender:
    """Appends on a connection of its own, which moves between two appends. One append is made after the other.

    `leading_node` returns the name of the node that leads the stream, and `find` the host where a node of that name is,
    followed by the others, or nothing. Both may raise OSError.
    """

    def __init__(
        self,
        address: EngineAddress,
        timeout: float,
        leading_node: Callable[[], str],
        find: Callable[[str], list[str]],
    ) -> None:
        self._address = address
        self._timeout = timeout
        self._leading_node = leading_node
        self._find = find
        self._appender = NatsAppender(address, timeout)
        self._next: NatsAppender | None = None
        self._moving = threading.Lock()
        self._near: tuple[str, str] | None = None
        """The node that leads the stream, and its host, once appends are made there."""
        self._approaching = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._tend, name="replication-tender", daemon=True)

    def connect(self, hosts: Sequence[str]) -> None:
        """Connect to the first of `hosts` that answers. Raises ConnectionError."""
        self._appender.connect(hosts)
        self._thread.start()

    @property
    def host(self) -> str:
        """Where the connection is, or nothing."""
        return self._appender.host

    def approach(self) -> None:
        """Move to the node that leads the stream, now and whenever another one does."""
        self._approaching.set()

    def send(self, entries: Sequence[bytes]) -> Callable[[], list[int]]:
        """Begin to append entries. See `ReplicatedLog`."""
        with self._moving:
            before, self._appender, self._next = self._appender, self._next or self._appender, None
        if before is not self._appender:
            threading.Thread(target=before.close, name="replication-closer", daemon=True).start()
        return self._appender.send(entries)

    def close(self) -> None:
        """Disconnect. Appends that wait for answers fail."""
        self._stopping.set()
        with self._moving:
            appenders = {self._appender, self._next or self._appender}
        for each in appenders:
            each.close()

    def _tend(self) -> None:
        """Keep the connection alive while nobody appends, and near to the stream's leader."""
        turn = 0
        while not self._stopping.is_set():
            self._appender.tend()
            if self._approaching.is_set():
                if not turn % _NEAR_TURNS:
                    with contextlib.suppress(OSError):
                        self._come_near()
                turn += 1
                self._stopping.wait(_TEND_SECONDS)
            else:
                self._approaching.wait(_TEND_SECONDS)

    def _come_near(self) -> None:
        """Connect to the node that leads the stream, unless appends are made there already."""
        leader, appender = self._leading_node(), self._next or self._appender
        if not leader or (leader, appender.host) == self._near:
            return
        hosts = self._find(leader)
        if not hosts:
            return
        if hosts[0] != appender.host:
            appender = NatsAppender(self._address, self._timeout)
            appender.connect(hosts)
            with self._moving:
                abandoned, self._next = self._next, appender
            if abandoned is not None:
                abandoned.close()
            if self._stopping.is_set():
                appender.close()
        self._near = leader, hosts[0]
