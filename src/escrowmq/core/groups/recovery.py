"""Consumer groups as recovery finds them in the records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from escrowmq.core.groups.cursor import Out
from escrowmq.core.groups.group import Lock
from escrowmq.core.groups.settled import Settled
from escrowmq.core.queues.stream import StreamQueue
from escrowmq.core.records.changes import decode_change
from escrowmq.core.records.groups import (
    ProgressCause,
    decode_group_progress,
    decode_group_settled,
    decode_leased,
    decode_locked,
)

if TYPE_CHECKING:
    from escrowmq.core.broker import Broker

Payload = bytes | memoryview


class _FoundCursor:
    """The state of a cursor."""

    __slots__ = ("lock", "out", "settled", "used")

    def __init__(self) -> None:
        self.settled = Settled()
        self.out: dict[int, Out] = {}
        self.lock: Lock | None = None
        self.used = False  # whether there is more than a lock


class FoundGroups:
    """Applies the records of groups in order; `finish` hands the result to the broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._groups: dict[int, dict[str, Any]] = {}
        self._cursors: dict[int, dict[int, _FoundCursor]] = {}  # by number of the group and id of the stream

    def set(self, lsn: int, payload: Payload) -> None:
        """Apply GROUP_SET."""
        fields = decode_change(payload)
        self._groups[fields["number"]] = fields
        self._broker.groups.seen(fields["number"])

    def deleted(self, lsn: int, payload: Payload) -> None:
        """Apply GROUP_DELETED."""
        self._drop(decode_change(payload)["number"])

    def _drop(self, number: int) -> None:
        self._groups.pop(number, None)
        self._cursors.pop(number, None)

    def leased(self, lsn: int, payload: Payload) -> None:
        """Apply GROUP_LEASED."""
        record = decode_leased(payload)
        cursor = self._cursor(record.group, record.stream)
        for first, length, attempts in record.ranges:
            for position in range(first, first + length):
                cursor.out[position] = Out(record.due, attempts, record.generation)

    def settled(self, lsn: int, payload: Payload) -> None:
        """Apply GROUP_SETTLED."""
        record = decode_group_settled(payload)
        cursor = self._cursor(record.group, record.stream)
        for first, length, _ in record.ranges:
            cursor.settled.add(first, length)
            for position in range(first, first + length):
                cursor.out.pop(position, None)
        cursor.settled.raise_to(record.floor)

    def progress(self, lsn: int, payload: Payload) -> None:
        """Apply GROUP_PROGRESS."""
        record = decode_group_progress(payload)
        cursor = self._cursor(record.group, record.stream)
        if record.cause is ProgressCause.RESET:
            cursor.settled = Settled(record.floor)
            cursor.out.clear()
        else:
            cursor.settled.raise_to(record.floor)

    def locked(self, lsn: int, payload: Payload) -> None:
        """Apply GROUP_LOCKED."""
        record = decode_locked(payload)
        found = self._cursors.setdefault(record.group, {}).setdefault(record.stream, _FoundCursor())
        found.lock = Lock(record.owner, record.until) if record.until else None

    def _cursor(self, group: int, stream: int) -> _FoundCursor:
        found = self._cursors.setdefault(group, {}).setdefault(stream, _FoundCursor())
        found.used = True
        return found

    def queue_deleted(self, ident: int) -> None:
        """Forget the cursors over a stream that was deleted."""
        for cursors in self._cursors.values():
            cursors.pop(ident, None)

    def vhost_deleted(self, vhost: str) -> None:
        """Forget the groups of a virtual host that was deleted."""
        for number in [number for number, fields in self._groups.items() if fields["vhost"] == vhost]:
            self._drop(number)

    def finish(self) -> None:
        """Make the groups, after the streams have their messages."""
        streams = {queue.ident: queue for queue in self._broker.directory.durable_queues()}
        for number, fields in self._groups.items():
            group = self._broker.groups.restore(fields)
            for ident, found in self._cursors.get(number, {}).items():
                stream = streams.get(ident)
                if not isinstance(stream, StreamQueue):
                    continue
                if found.lock is not None:
                    group.restore_lock(stream, found.lock)
                if found.used:
                    cursor = group.cursor(stream)
                    cursor.settled, cursor.out = found.settled, found.out
                    cursor.begin()
