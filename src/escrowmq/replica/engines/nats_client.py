"""Connects to NATS, with the login and certificates of an address."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import nats.errors
from nats.aio.client import Client

from escrowmq.replica.engines.address import NATS_TLS, EngineAddress
from escrowmq.replica.engines.within import within
from escrowmq.urls import TLS_PARAMETERS, tls_context

WINDOW_BYTES: Final = 16 * 1024 * 1024
"""The bytes of entries that are on their way at once. A stream's leader refuses more than 128 MB."""
_CLOSE_SECONDS: Final = 0.5
_ERRORS: Final = 3
"""How many of the client's errors an error of ours repeats."""


class NatsErrors:
    """The last errors of a client, each once. A refused login is often followed by connections that are reset."""

    def __init__(self) -> None:
        self._errors: list[str] = []

    async def add(self, error: Exception) -> None:
        """Keep an error."""
        text = str(error) or type(error).__name__
        self._errors = [*(each for each in self._errors if each != text), text][-_ERRORS:]

    def __str__(self) -> str:
        return "; ".join(self._errors)


def login(address: EngineAddress) -> dict[str, Any]:
    """Return the client's settings for login and TLS. Raises ValueError with one line if a file cannot be used."""
    options: dict[str, Any] = {"user_credentials": address.options.get("credentials")}
    if address.user is not None:
        options |= {"user": address.user, "password": address.password}
    if address.scheme == NATS_TLS:
        parameters = {name: value for name, value in address.options.items() if name in TLS_PARAMETERS}
        options["tls"] = tls_context(parameters)
    return options


def check_options(address: EngineAddress) -> None:
    """Raise ValueError with one line if the parameters of the URL cannot be used. NATS need not be there."""
    login(address)
    credentials = address.options.get("credentials")
    if credentials is not None:
        if find_spec("nkeys") is None:
            raise ValueError("credentials need a further library: pip install 'nats-py[nkeys]'")
        try:
            Path(credentials).read_bytes()
        except OSError as error:
            raise ValueError(f"credentials: {error}") from None


async def connect(
    address: EngineAddress,
    hosts: Sequence[str],
    patience: float,
    errors: NatsErrors,
    disconnected: Callable[[], Awaitable[None]] | None = None,
) -> Client:
    """Connect to the first of `hosts` that answers, and again to one of them whenever the connection is lost.

    `hosts` have ports. `disconnected` is called after each loss. Raises ConnectionError after `patience` seconds.
    """
    try:
        options = login(address)
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
        disconnected_cb=disconnected,
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


def host_of(client: Client) -> str:
    """Return where a client is connected, with the port, or nothing."""
    url = client.connected_url
    return url.netloc.rpartition("@")[2] if url is not None else ""
