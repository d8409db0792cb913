"""Blocks publishers while memory or disk space is short, or the journal's writer cannot keep up."""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

from escrowmq.admin.events import ALARM_CLEARED, ALARM_RAISED, LiveEvents
from escrowmq.core.broker import Broker
from escrowmq.server.connection import ClientConnection, Pause
from escrowmq.server.intake import Intake
from escrowmq.server.resources import Alarms, resident_bytes
from escrowmq.server.turn import Turns
from escrowmq.wire.endpoint import Endpoint

UNWRITTEN_LIMIT: Final = 64 << 20
"""Unwritten bytes above which publishers are not read, until half of them have been written."""
ALARM_CHECK_MS: Final = 20
"""The minimum time between two checks of memory and disk."""
_PRESSING: Final = {
    True: "memory pressure: queues keep only a few messages each in memory",
    False: "memory pressure ended: queues may again use their full memory limit",
}

_log = logging.getLogger("escrowmq.server")


class Pressure:
    """Keeps a list of the endpoints that publish, and blocks them."""

    def __init__(self, turns: Turns, intake: Intake, alarms: Alarms, live_events: LiveEvents) -> None:
        self._turns = turns
        self._broker: Broker = turns.broker
        self._intake = intake
        self._alarms = alarms
        self._live_events = live_events
        self._publishers: dict[Endpoint, ClientConnection] = {}
        self.blocked = 0
        """Connections whose publishers are blocked by an alarm."""
        self._full = False
        self._checked_ms = 0
        turns.after.append(self.watch)

    @property
    def publishers(self) -> int:
        """The number of connections that have published."""
        return len(self._publishers)

    def add(self, endpoint: Endpoint, connection: ClientConnection) -> None:
        """Add an endpoint that has begun to publish."""
        self._publishers[endpoint] = connection
        self._tell(endpoint)
        if self._full:
            connection.pause(Pause.JOURNAL, on=True)

    def forget(self, endpoint: Endpoint) -> None:
        """Remove an endpoint whose connection is closed."""
        connection = self._publishers.pop(endpoint, None)
        if connection is not None and connection.blocked_for:
            self.blocked -= 1

    def watch(self) -> None:
        """Check the journal, and every `ALARM_CHECK_MS` memory and disk. Called at the end of each turn."""
        unwritten = self._turns.journal.pending_bytes
        full = unwritten > (UNWRITTEN_LIMIT // 2 if self._full else UNWRITTEN_LIMIT)
        if full != self._full:
            self._full = full
            for connection in self._publishers.values():
                connection.pause(Pause.JOURNAL, on=full)
        now = self._broker.engine.now
        if not 0 <= now - self._checked_ms < ALARM_CHECK_MS:
            self._checked_ms = now
            self.check_alarms()

    def check_alarms(self) -> None:
        """Check memory and disk, and block or unblock publishers, a bounded number in each iteration of the loop."""
        alarms = self._alarms
        memory, disk, pressing = alarms.memory, alarms.disk, alarms.pressing
        try:
            changed = alarms.check()
        except OSError as error:
            _log.error("cannot read the free space of the data directory's disk: %s", error)
            return
        if alarms.scarcity != self._broker.engine.scarcity:
            self._broker.engine.scarcity = alarms.scarcity
            _log.warning(
                "%s",
                f"{alarms.scarcity} in spite of the alarm: nothing new can be declared or bound, and no branch begun"
                if alarms.scarcity
                else "clients may declare, bind and begin branches again",
            )
        if alarms.pressing != pressing:
            _log.info("%s", _PRESSING[alarms.pressing])
            self._broker.engine.keep_less(on=alarms.pressing)
        if not changed:
            return
        for name, before, now in (("memory", memory, alarms.memory), ("disk", disk, alarms.disk)):
            if before != now:
                self._live_events.note(ALARM_RAISED if now else ALARM_CLEARED, alarm=name)
        if alarms.memory != memory:
            _log.warning(
                "memory alarm %s: %d bytes resident, the limit is %d",
                "on, publishers are blocked" if alarms.memory else "off",
                *(resident_bytes(), alarms.memory_limit),
            )
        if alarms.disk != disk:
            _log.warning(
                "disk alarm %s: the limit is %d free bytes",
                "on, publishers are blocked" if alarms.disk else "off",
                alarms.disk_limit,
            )
        for endpoint in self._publishers:
            self._intake.defer(partial(self._tell, endpoint))

    def _tell(self, endpoint: Endpoint) -> None:
        """Block or unblock a publisher according to the current alarms, unless it has been told already."""
        connection, reason = self._publishers.get(endpoint), self._alarms.reason
        if connection is None or connection.blocked_for == reason:
            return
        self._turns.begin()
        self.blocked += bool(reason) - bool(connection.blocked_for)
        connection.blocked_for = reason
        endpoint.block(reason)
        if not reason:
            connection.read_on()
