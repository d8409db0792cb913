"""Tells the supervisor of the process, such as systemd, that the broker is ready, alive or stopping.

The supervisor names a datagram socket in `NOTIFY_SOCKET`, and the time after which a silent process counts as hung in
`WATCHDOG_USEC` (sd_notify(3), sd_watchdog_enabled(3)). Without the first variable nothing is sent.

A standby is ready when it has read the replicated log, because its supervisor would otherwise wait until it leads. From
its start until it serves clients, a thread gives the signs of life: no event loop runs while the process waits for the
log or reads its journal, and the supervisor may know the process from the time when it led before.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
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
        self._leads = threading.Event()

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

    def waits_for_log(self) -> None:
        """Report that this process is to be a standby, and from now on until `leads` that it is alive."""
        self._send("STATUS=Reading the replicated log\n")
        if self._address and self._pause:
            threading.Thread(target=self._live_on_thread, name="signs-of-life", daemon=True).start()

    def stands_by(self) -> None:
        """Report that this process is a standby. It may be called on any thread."""
        self._send("READY=1\nSTATUS=Standby, follows the replicated log\n")

    def leads(self) -> None:
        """End the signs of life of a standby."""
        self._leads.set()

    def hands_over(self) -> None:
        """Report that the process begins again as a standby. The signs of life go on until `rest`."""
        self._send("STATUS=Closing connections, so that another node leads\n")

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

    def _live_on_thread(self) -> None:
        while not self._leads.wait(self._pause):
            self._send("WATCHDOG=1\n")

    def _send(self, state: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.sendto(state.encode(), self._address)
        except OSError as error:
            _log.warning("the service manager cannot be notified (NOTIFY_SOCKET): %s", error)
