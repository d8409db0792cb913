"""Where the keys of the issuer come from: a file, or a URL (JWKS). Reading takes time, so it runs on another thread."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

from escrowmq.server.tokens.keys import LONGEST, KeysFault

_CHUNK: Final = 16_384
_OK: Final = 200
_LOCAL: Final = frozenset(("127.0.0.1", "::1", "localhost"))

Source = Callable[[], bytes]
"""Returns a key set. Raises KeysFault."""


def file_source(path: Path) -> Source:
    """Return what reads a file."""

    def read() -> bytes:
        try:
            with path.open("rb") as file:
                data = file.read(LONGEST + 1)
        except OSError as error:
            raise KeysFault(error.strerror or str(error)) from None
        return _bounded(data)

    return read


def url_source(url: str, ca: Path | None, timeout: float) -> Source:
    """Return what fetches a URL within about `timeout` seconds. `ca` has the authorities for the server's certificate,
    if it is not the system that has them. Redirects are not followed. Raises KeysFault if `ca` cannot be used.
    """
    # Few brokers fetch keys, and this import would be a twentieth of the time in which each of them starts.
    from urllib.request import HTTPHandler, HTTPSHandler, OpenerDirector, ProxyHandler, Request, getproxies

    opener = OpenerDirector()
    if urlsplit(url).scheme == "https":
        try:
            context = ssl.create_default_context(cafile=str(ca) if ca is not None else None)
        except OSError as error:
            raise KeysFault(f"{ca}: {error}") from None
        opener.add_handler(HTTPSHandler(context=context))
        opener.add_handler(ProxyHandler({name: proxy for name, proxy in getproxies().items() if name == "https"}))
    else:
        opener.add_handler(HTTPHandler())

    def read() -> bytes:
        until = time.monotonic() + timeout
        request = Request(url, headers={"Accept": "application/jwk-set+json, application/json"})  # noqa: S310 - `fault_of_url`
        try:
            with opener.open(request, timeout=timeout) as answer:
                if answer.status != _OK:
                    raise KeysFault(f"the server answered with status {answer.status}")
                data = bytearray()
                while len(data) <= LONGEST and (chunk := answer.read1(_CHUNK)):
                    data += chunk
                    if time.monotonic() > until:
                        raise KeysFault(f"the answer was not complete after {timeout:g} s")
        except HTTPError as error:
            raise KeysFault(f"the server answered with status {error.code}") from None
        except URLError as error:
            raise KeysFault(str(error.reason)) from None
        except (OSError, ValueError) as error:  # also the faults of http.client
            raise KeysFault(str(error) or type(error).__name__) from None
        return _bounded(bytes(data))

    return read


def fault_of_url(url: str) -> str:
    """Return why keys must not be fetched from a URL; an empty text if they may be."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        return str(error)
    if not host or parts.scheme not in {"https", "http"}:
        return "an address such as https://idp.example.com/keys is needed"
    if parts.scheme == "http" and host not in _LOCAL:
        return "https is needed, except for this machine: whoever changes the keys on their way can sign tokens"
    return ""


def _bounded(data: bytes) -> bytes:
    if len(data) > LONGEST:
        raise KeysFault(f"it is larger than {LONGEST} bytes")
    return data
