"""Clients' faults that cost them a channel or the connection, in the log, which one that repeats it does not fill."""

from __future__ import annotations

import logging
from typing import Final

AT_ONCE: Final = 20
"""Lines in one period; the others are counted."""
PERIOD_MS: Final = 10_000
_NOT_FOUND: Final = 404
"""Clients ask with it whether something exists: no reason for a warning."""

_log = logging.getLogger("escrowmq.connection")


class Faults:
    """Writes one line for each fault, up to `AT_ONCE` in `PERIOD_MS` milliseconds."""

    def __init__(self) -> None:
        self._since = 0
        self._lines = 0
        self._left_out = 0

    def note(self, now_ms: int, label: str, code: int, text: str) -> None:
        """`label` tells peer and user."""
        if not 0 <= now_ms - self._since < PERIOD_MS:
            if self._left_out:
                _log.warning("%d more faults of clients were not logged", self._left_out)
            self._since, self._lines, self._left_out = now_ms, 0, 0
        if self._lines >= AT_ONCE:
            self._left_out += 1
            return
        self._lines += 1
        _log.log(logging.INFO if code == _NOT_FOUND else logging.WARNING, "%s: %d %s", label, code, text)
