"""What happens in the broker and leaves no record in the journal: connections that open and close, and alarms.

The last `KEPT` of these live events are kept in memory, with numbers that begin at 1 when the broker starts. `start`
tells one run of the broker from another, since the numbers begin again with each.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final

from escrowmq.admin.operation import Operation, Row
from escrowmq.admin.ports import BrokerProcess

KEPT: Final = 1000
CONNECTION_OPENED: Final = "CONNECTION_OPENED"
CONNECTION_CLOSED: Final = "CONNECTION_CLOSED"
ALARM_RAISED: Final = "ALARM_RAISED"
ALARM_CLEARED: Final = "ALARM_CLEARED"
QUEUE_UNAVAILABLE: Final = "QUEUE_UNAVAILABLE"
QUEUE_AVAILABLE: Final = "QUEUE_AVAILABLE"


class LiveEvents:
    """The live events of this run of the broker. `clock` returns milliseconds since the epoch."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.start = os.urandom(4).hex()
        self.last = 0
        """The number of the last event; 0 if there was none."""
        self._clock = clock
        self._kept: deque[tuple[int, str, Mapping[str, Any]]] = deque(maxlen=KEPT)

    def note(self, name: str, /, **fields: Any) -> None:
        """Note that something has happened now. `fields` must be fit for JSON."""
        self.last += 1
        self._kept.append((self._clock(), name, fields))

    def after(self, number: int) -> list[Row]:
        """Return the events after a number, as far as they are kept."""
        first = self.last - len(self._kept) + 1
        begin = max(number + 1 - first, 0)
        return [
            {"number": place, "time_ms": time_ms, "name": name, "fields": dict(fields)}
            for place, (time_ms, name, fields) in enumerate(islice(self._kept, begin, None), first + begin)
        ]


class EventAdmin:
    """The operation is in `operations`."""

    def __init__(self, process: BrokerProcess) -> None:
        self._process = process
        self.operations: Mapping[str, Operation] = {"event.list": self.list_events}

    async def list_events(self, start: str = "", after: int | None = None) -> Row:
        """Return the live events after number `after` of the run `start` of the broker, none if `after` is None. If the
        broker was started again meanwhile, those from its start on are returned.

        `start` and `last` of the answer are to be given the next time. `missed` is the number of events that are no
        longer kept. `synced_lsn` is the address below which the journal is on disk.
        """
        live = self._process.live_events
        begin = live.last if after is None else after if start == live.start else 0
        events = live.after(begin)
        return {
            "start": live.start,
            "last": live.last,
            "restarted": after is not None and start != live.start,
            "missed": max(live.last - begin - len(events), 0),
            "events": events,
            "synced_lsn": self._process.synced_lsn,
        }
