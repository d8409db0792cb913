"""Parses quantities as people write them: sizes ("64MiB"), durations ("30s"), addresses ("127.0.0.1:5672")."""

from __future__ import annotations

import re
from typing import NamedTuple

_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[kKMGT]i?B|B)?", re.ASCII)
_SIZE_UNITS = {
    "B": 1,
    **{f"{letter}B": 1000**power for power, letter in enumerate("kMGT", 1)},
    **{f"{letter}iB": 1024**power for power, letter in enumerate("KMGT", 1)},
    "KB": 1000,
    "kiB": 1024,
}

_DURATION = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>ms|s|min|m|h|d)?", re.ASCII)
_DURATION_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}

_SHARE = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*%", re.ASCII)

SHARE_FORM = 'a share: a text from "0%" to "100%"'
SIZE_FORM = 'a size: a number of bytes, or a text like "64MiB" or "1.5GB"'
DURATION_FORM = 'a duration: a number of seconds, or a text like "250ms", "30s", "5m" or "1h"'
ADDRESS_FORM = 'an address "HOST:PORT" or "[IPV6]:PORT" (port 0 picks a free one)'


def parse_size(value: object) -> int:
    """Return the bytes of a number, or of a text with a unit (kB, KiB, MB, MiB, GB, GiB, TB, TiB).

    Raises:
        ValueError: The value is anything else.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and (match := _SIZE.fullmatch(value.strip())):
        return int(float(match["number"]) * _SIZE_UNITS[match["unit"] or "B"])
    raise ValueError(SIZE_FORM)


def parse_share(value: str) -> float:
    """Return the share, from 0 to 1, of a text such as "5%".

    Raises:
        ValueError: The value is anything else.
    """
    match = _SHARE.fullmatch(value.strip())
    share = float(match["number"]) / 100 if match else -1.0
    if not 0 <= share <= 1:
        raise ValueError(SHARE_FORM)
    return share


def parse_duration(value: object) -> float:
    """Return the seconds of a number, or of a text with a unit (ms, s, m, h, d).

    Raises:
        ValueError: The value is anything else.
    """
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf"):
        return float(value)
    if isinstance(value, str) and (match := _DURATION.fullmatch(value.strip())):
        return float(match["number"]) * _DURATION_UNITS[match["unit"] or "s"]
    raise ValueError(DURATION_FORM)


class Address(NamedTuple):
    """A host and a port, to listen on or to connect to."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(value: object) -> Address:
    """Parse a text "HOST:PORT". An IPv6 host must be in brackets.

    Raises:
        ValueError: The value is anything else.
    """
    if isinstance(value, Address):
        return value
    if isinstance(value, str):
        host, colon, port = value.strip().rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        plain = host[1:-1] if bracketed else host
        if colon and plain and bracketed == (":" in plain) and port.isdecimal() and int(port) <= 65535:
            return Address(plain, int(port))
    raise ValueError(ADDRESS_FORM)


def format_size(size: int) -> str:
    """Return the shortest exact form: 131072 → "128KiB", 1000 → "1000B"."""
    for letter, power in (("T", 4), ("G", 3), ("M", 2), ("K", 1)):
        if size and size % 1024**power == 0:
            return f"{size // 1024**power}{letter}iB"
    return f"{size}B"
