"""Tells the supervisor of the process, such as systemd, that the broker is ready, alive or stopping.

The supervisor names a datagram socket in `NOTIFY_SOCKET`, and the time after which a silent process counts as hung in
`WATCHDOG_USEC` (sd_notify(3), sd_watchdog_enabled(3)). Without the first variable nothing is sent.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Mapping
from typing import Final

_SIGNS_IN_TIME: Final = 3
"""The signs of life in each interval of the watchdog, so that one or two may be late."""

_log = logging.getLogger("escrowmq.server")


class Supervisor:
    """Sends states. `address` is that of the socket, or empty; `watchdog_seconds` is 0 without a watchdog."""

    def __init__(self, address: str, watchdog_seconds: float) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._pause = watchdog_seconds / _SIGNS_IN_TIME
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Supervisor:
        """Return the supervisor that the environment names. A watchdog for another process is ignored."""
        microseconds = environment.get("WATCHDOG_USEC", "")
        ours = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        return cls(
            environment.get("NOTIFY_SOCKET", ""), int(microseconds) / 1e6 if ours and microseconds.isdecimal() else 0.0
        )

    def ready(self, addresses: str) -> None:
        """Report that clients can connect to `addresses`, and from now on that the event loop is alive."""
        self._send(f"READY=1\nSTATUS=Serving {addresses}\n")
        if self._address and self._pause:
            self._live()

    def stopping(self) -> None:
        """Report that the broker stops. The signs of life go on until `rest`."""
        self._send("STOPPING=1\nSTATUS=Closing connections and syncing the journal\n")

    def rest(self) -> None:
        """Give no more signs of life."""
        if self._timer is not None:
            self._timer.cancel()

    def _live(self) -> None:
        self._send("WATCHDOG=1\n")
        self._timer = asyncio.get_running_loop().call_later(self._pause, self._live)

    def _send(self, state: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.sendto(state.encode(), self._address)
        except OSError as error:
            _log.warning("the service manager cannot be notified (NOTIFY_SOCKET): %s", error)
