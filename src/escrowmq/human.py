"""Format numbers of bytes and durations for people."""

from __future__ import annotations

from typing import Final

_SIZES: Final = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_TIMES: Final = ((86_400e3, "d"), (3_600e3, "h"), (60e3, "min"), (1e3, "s"), (1.0, "ms"))


def size(count: float) -> str:
    """Format a number of bytes, as in `12 B`, `3.4 kB` or `120 MB`."""
    for unit, name in _SIZES:
        if count >= unit:
            return f"{_short(count / unit)} {name}"
    return f"{count:.0f} B"


def duration(milliseconds: float) -> str:
    """Format a duration, as in `0.35 ms`, `12 ms`, `3.4 s`, `15 min`, `2.5 h` or `3.1 d`."""
    for unit, name in _TIMES:
        if milliseconds >= unit:
            return f"{_short(milliseconds / unit)} {name}"
    return f"{milliseconds:.2g} ms"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}".removesuffix(".0")
