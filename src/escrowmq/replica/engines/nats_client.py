"""Connects to NATS, with the login and certificates of an address."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

import nats.errors
from nats.aio.client import Client

from escrowmq.replica.engines.address import NATS_TLS, EngineAddress
from escrowmq.replica.engines.client_errors import ClientErrors
from escrowmq.replica.engines.nats_login import client_options
from escrowmq.replica.engines.within import within

WINDOW_BYTES: Final = 16 * 1024 * 1024
"""The bytes of entries that are on their way at once. A stream's leader refuses more than 128 MB."""
_CLOSE_SECONDS: Final = 0.5


class NatsErrors(ClientErrors):
    """The errors of one client."""

    async def add(self, error: Exception) -> None:
        """Keep an error."""
        silent = "it does not answer as a NATS server does" if isinstance(error, TimeoutError) else ""
        self.note(str(error) or silent or type(error).__name__)


async def connect(
    address: EngineAddress,
    hosts: Sequence[str],
    patience: float,
    errors: NatsErrors,
) -> Client:
    """Connect to the first of `hosts` that answers, and again to one of them whenever the connection is lost.

    `hosts` have ports. Raises ConnectionError after `patience` seconds.
    """
    try:
        options = client_options(address)
    except ValueError as error:  # the files have changed since `check_options`
        raise ConnectionError(f"NATS at {address} cannot be reached: {error}") from None
    scheme = "tls" if address.scheme == NATS_TLS else "nats"
    client = Client()
    connecting = client.connect(
        [f"{scheme}://{host}" for host in hosts],
        name="escrowmq",
        dont_randomize=True,
        connect_timeout=2,
        reconnect_time_wait=0.1,  # type: ignore[arg-type]  # it is given to asyncio.sleep
        max_reconnect_attempts=-1,
        ping_interval=1,
        max_outstanding_pings=3,
        pending_size=WINDOW_BYTES,
        error_cb=errors.add,
        **options,
    )
    try:
        await within(patience, connecting)
    except (TimeoutError, OSError, nats.errors.Error) as error:
        with contextlib.suppress(TimeoutError):  # it may wait for ever for the end of a connection with TLS
            await within(_CLOSE_SECONDS, client.close())
        reason = str(errors) or str(error) or "no answer"
        raise ConnectionError(f"NATS at {address} cannot be reached: {reason}") from None
    return client
