"""An attempt to connect to NATS, on a thread of its own. Names, dead hosts and logins take longer than an append."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from escrowmq.replica.engines.address import EngineAddress
from escrowmq.replica.engines.nats_socket import NatsSocket


class NatsAttempt:
    """Asks hosts for a connection, one after the other. Any thread may wait for it or abandon it."""

    def __init__(self, address: EngineAddress, hosts: Sequence[str], subscription: str) -> None:
        """Begin. Raises ConnectionError if the machine has no thread left."""
        self._address = address
        self._hosts = hosts
        self._subscription = subscription
        self._errors: list[str] = []
        self._socket: NatsSocket | None = None
        self._handing = threading.Lock()
        self._abandoned = False
        self._over = threading.Event()
        try:
            threading.Thread(target=self._run, name="replication-connecting", daemon=True).start()
        except RuntimeError as error:
            raise ConnectionError(str(error)) from None

    @property
    def errors(self) -> str:
        """Why hosts that were asked gave no connection, or nothing."""
        return "; ".join(self._errors)

    def wait(self, seconds: float) -> bool:
        """Wait until the attempt is over, and return whether it is."""
        return self._over.wait(max(0.0, seconds))

    def take(self) -> NatsSocket | None:
        """Return the connection, which belongs to the caller then, or None if there is none."""
        with self._handing:
            sock, self._socket = self._socket, None
        return sock

    def abandon(self) -> None:
        """End the attempt for those who wait. A host that answers later is disconnected."""
        with self._handing:
            self._abandoned = True
        sock = self.take()
        if sock is not None:
            sock.close()
        self._over.set()

    def _run(self) -> None:
        try:
            for host in self._hosts:
                if self._abandoned or self._ask(host):
                    return
        finally:
            self._over.set()

    def _ask(self, host: str) -> bool:
        """Connect to a host, and return whether that was possible."""
        try:
            sock = NatsSocket(self._address, host, self._subscription)
        except ConnectionError as error:
            self._errors.append(str(error))
            return False
        with self._handing:
            if not self._abandoned:
                self._socket = sock
                return True
        sock.close()
        return True
