"""Restricts a connection to one thread at a time, in the process that opened it."""

from __future__ import annotations

import os
import threading

from escrowmq.client.errors import InterfaceError


class Guard:
    """A reentrant lock around every call on a connection.

    It raises InterfaceError instead of waiting, because concurrent callers would mix up each other's bytes. A callback
    that the connection runs may call the connection again.
    """

    __slots__ = ("_lock", "_pid")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._pid = os.getpid()

    @property
    def forked(self) -> bool:
        """Whether this process was forked from the one that opened the connection."""
        return os.getpid() != self._pid

    def __enter__(self) -> None:
        if os.getpid() != self._pid:
            raise InterfaceError(
                f"this connection belongs to process {self._pid}, from which process {os.getpid()} was forked; "
                "open a new connection in the child process"
            )
        if not self._lock.acquire(blocking=False):
            raise InterfaceError(
                "another thread is using this connection; give each thread a connection of its own, "
                "or hand work over with connection.add_callback_threadsafe"
            )

    def __exit__(self, *_: object) -> None:
        self._lock.release()
