"""Who may use a connection: one thread at a time, in the process that made it."""

from __future__ import annotations

import os
import threading

from escrowmq.client.errors import InterfaceError


class Guard:
    """Entered around every call. Refuses what would mix up the bytes of two callers, instead of waiting for it.

    A callback that the connection runs may call it again.
    """

    __slots__ = ("_lock", "_pid")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._pid = os.getpid()

    @property
    def forked(self) -> bool:
        """Whether this is a child of the process that made the connection."""
        return os.getpid() != self._pid

    def __enter__(self) -> None:
        if os.getpid() != self._pid:
            raise InterfaceError(
                f"this connection belongs to process {self._pid}, from which {os.getpid()} was forked; "
                "a child process needs a connection of its own"
            )
        if not self._lock.acquire(blocking=False):
            raise InterfaceError(
                "another thread is using this connection; give each thread its own, "
                "or hand work over by connection.add_callback_threadsafe"
            )

    def __exit__(self, *_: object) -> None:
        self._lock.release()
