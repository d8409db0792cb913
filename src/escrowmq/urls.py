"""Splits URLs of brokers, and shows them without their password."""

from __future__ import annotations

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
