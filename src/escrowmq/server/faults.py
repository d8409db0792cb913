"""Log lines for errors of clients that closed a channel or the connection, limited in number."""

from __future__ import annotations

import logging
from typing import Final

from escrowmq.wire.endpoint import Peer

AT_ONCE: Final = 20
"""The maximum number of lines in one period. Further errors are only counted."""
PERIOD_MS: Final = 10_000
_NOT_FOUND: Final = frozenset((404, "amqp:not-found", "no-route"))
"""Clients use these errors to find out whether a queue, an exchange or a topic exists, so they are not worth a warning.
"""

_log = logging.getLogger("escrowmq.connection")


class Faults:
    """Writes one line for each error, but at most `AT_ONCE` in `PERIOD_MS` milliseconds."""

    def __init__(self) -> None:
        self._since = 0
        self._lines = 0
        self._left_out = 0

    def note(self, now_ms: int, label: str, peer: Peer, user: str | None, code: int | str, text: str) -> None:
        """Log an error. `label` names the connection, `code` is the protocol's code or name of it."""
        if self._admit(now_ms):
            level = logging.INFO if code in _NOT_FOUND else logging.WARNING
            fields = {"peer": peer, "user": user, "reply_code": code, "reason": text}
            _log.log(level, "%s, user %r: %s %s", label, user, code, text, extra={"fields": fields})

    def note_closed(self, now_ms: int, peer: Peer, text: str) -> None:
        """Log that a connection was closed before its client had logged in, and why."""
        if self._admit(now_ms):
            _log.warning("connection from %s closed: %s", peer, text, extra={"fields": {"peer": peer, "reason": text}})

    def _admit(self, now_ms: int) -> bool:
        """Whether a line may be written now."""
        if not 0 <= now_ms - self._since < PERIOD_MS:
            if self._left_out:
                _log.warning("%d more errors of clients were not logged", self._left_out)
            self._since, self._lines, self._left_out = now_ms, 0, 0
        if self._lines >= AT_ONCE:
            self._left_out += 1
            return False
        self._lines += 1
        return True
