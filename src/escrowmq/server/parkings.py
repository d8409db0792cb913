"""Log lines for half messages that are parked, limited in number: thousands may be parked at once."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from escrowmq.core.broker import Broker
    from escrowmq.core.half.message import HalfMessage

PERIOD_MS: Final = 10_000
"""The time after a line in which further half messages are only counted."""
_SEE: Final = "see `escrowmq half list --state parked`"

_log = logging.getLogger("escrowmq.server")


class Parkings:
    """Logs the first half message that is parked, and counts those of the next `PERIOD_MS` milliseconds."""

    def __init__(self, broker: Broker) -> None:
        self._engine = broker.engine
        self._counting = False
        self._more: Counter[str] = Counter()  # by virtual host
        broker.half.watch(self.note)

    def note(self, half: HalfMessage) -> None:
        """Log or count a half message that was parked."""
        if self._counting:
            self._more[half.vhost] += 1
            return
        _log.warning(
            "%s in vhost '%s', message id '%s', is parked: no producer of group '%s' decided it after %d checks, and "
            "only an operator can decide it now; " + _SEE,
            *(half.title, half.vhost, half.message_id, half.group, half.checks),
            extra={"fields": {"vhost": half.vhost, "message_id": half.message_id, "group": half.group}},
        )
        self._count()

    def _count(self) -> None:
        self._counting = True
        self._engine.deadlines.set(self._engine.now + PERIOD_MS, self._end)

    def _end(self) -> None:
        if not self._more:
            self._counting = False
            return
        for vhost, count in self._more.items():
            _log.warning(
                "%d more half messages in vhost '%s' were parked in the last %d s; " + _SEE,
                count,
                vhost,
                PERIOD_MS // 1000,
            )
        self._more.clear()
        self._count()
