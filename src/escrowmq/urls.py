"""Splits URLs of brokers, shows them without their password, and reads the parameters that all clients share."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Final
from urllib.parse import SplitResult, urlsplit

_PORT: Final = (
    "cannot separate host and port: a port is a number up to 65535, an IPv6 address must be in brackets, and "
    "/ ? # @ : in a user name or password must be written %2F %3F %23 %40 %3A"
)


def split(url: str) -> SplitResult:
    """Split a URL into its parts; reading `port` does not fail.

    Raises ValueError with one line if the URL is invalid.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:  # its text contains the supposed port, which may be part of the password
        shown = redacted(url) if "@" in url else f"{url.partition('://')[0]}://…"
        raise ValueError(f"bad URL {shown}: {_PORT}") from None
    return parts


def redacted(url: str) -> str:
    """Return the URL without everything between scheme and last `@`, and without its query.

    This hides the password even if the URL has no scheme, or if characters in the password were not escaped.
    """
    before, at, behind = url.rpartition("@")
    scheme, separator, _ = before.partition("://")
    start = f"{scheme}{separator}" if separator else ""
    return f"{start}…@{behind.partition('?')[0]}" if at else behind.partition("?")[0]


TLS_PARAMETERS: Final = frozenset({"cacertfile", "certfile", "keyfile", "verify", "server_name_indication"})
"""The query parameters of `amqps` URLs."""

_FILES: Final = frozenset({"cacertfile", "certfile", "keyfile"})


def tls_context(parameters: Mapping[str, str]) -> ssl.SSLContext:
    """Return the TLS context for `TLS_PARAMETERS`. Raises ValueError with one line if one of them is invalid."""
    verify = parameters.get("verify", "verify_peer")
    if verify not in ("verify_peer", "verify_none"):
        raise ValueError(f"verify must be verify_peer or verify_none, not {verify!r}")
    try:
        context = ssl.create_default_context(cafile=parameters.get("cacertfile"))
        if verify == "verify_none":
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if "certfile" in parameters:
            context.load_cert_chain(parameters["certfile"], parameters.get("keyfile"))
    except OSError as error:  # ssl.SSLError is one
        files = ", ".join(value for name, value in parameters.items() if name in _FILES)
        raise ValueError(f"certificates: {error}{f' ({files})' if files else ''}") from None
    return context


def seconds(text: str) -> float | None:
    """Read a number of seconds; `none` is None. Raises ValueError."""
    return None if text.lower() == "none" else float(text)


def flag(text: str) -> bool:
    """Read true, 1, false or 0; nothing is true. Raises ValueError."""
    try:
        return {"true": True, "1": True, "": True, "false": False, "0": False}[text.lower()]
    except KeyError:
        raise ValueError(text) from None
