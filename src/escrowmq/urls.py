"""URLs of brokers, without ever repeating the password that is in one."""

from __future__ import annotations

from typing import Final
from urllib.parse import SplitResult, urlsplit

_PORT: Final = (
    "host and port cannot be told apart: the port is a number up to 65535, an IPv6 address stands in [ ], and in a "
    "user's name or password / ? # @ : are written %2F %3F %23 %40 %3A"
)


def split(url: str) -> SplitResult:
    """Its parts, of which `port` can be read. Raises ValueError with one line that says what is wrong."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:  # whose text repeats what it takes for the port, and that may be a piece of the password
        shown = redacted(url) if "@" in url else f"{url.partition('://')[0]}://…"
        raise ValueError(f"bad URL {shown}: {_PORT}") from None
    return parts


def redacted(url: str) -> str:
    """The URL without what stands before the last `@` but its scheme, and without its query. So a password is not in it
    though the URL has no scheme, or characters in the password that should have been escaped.
    """
    before, at, behind = url.rpartition("@")
    scheme, separator, _ = before.partition("://")
    start = f"{scheme}{separator}" if separator else ""
    return f"{start}…@{behind.partition('?')[0]}" if at else behind.partition("?")[0]
