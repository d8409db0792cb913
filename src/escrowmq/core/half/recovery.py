"""The half messages that recovery finds in the records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from escrowmq.core.half.ledger import HalfLedger
from escrowmq.core.half.queue import HalfQueue
from escrowmq.core.half.state import HalfState
from escrowmq.core.records.half import (
    decode_half_decided,
    decode_half_many,
    decode_half_resumed,
    decode_half_states,
    decode_origin,
    split_half_stored,
)

if TYPE_CHECKING:
    from escrowmq.core.broker import Broker
    from escrowmq.core.half.origin import HalfOrigin
    from escrowmq.core.records.half import Payload


class FoundHalf:
    """Half messages by the number of their hidden queue. `finish` hands them to the broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._ledgers: dict[int, HalfLedger] = {}
        self._origins: dict[tuple[int, bytes], HalfOrigin] = {}  # by queue and record
        self._vhosts: dict[int, str] = {}

    def _of(self, queue: int) -> HalfLedger:
        found = self._ledgers.get(queue)
        if found is None:
            found = self._ledgers[queue] = HalfLedger()
        return found

    def stored(self, lsn: int, payload: Payload) -> None:
        self.add(*split_half_stored(payload))

    def add(self, queue: int, number: int, born: int, due: int, ident: str, shared: bytes) -> None:
        """Add a pending half message. `shared` are the facts that it shares with others, as in its record."""
        ledger = self._of(queue)
        origin = self._origins.get((queue, shared))
        if origin is None:
            origin = self._origins[queue, shared] = ledger.origins.of(decode_origin(shared))
        ledger.add(number, ident, born, due, origin)

    def decided(self, lsn: int, payload: Payload) -> None:
        decided = decode_half_decided(payload)
        ledger = self._of(decided.queue)
        checks = ledger.rows.checks(decided.number)
        ledger.set(decided.number, HalfState(decided.state), decided.time, checks)

    def checked(self, lsn: int, payload: Payload) -> None:
        queue, time, numbers, _ = decode_half_many(payload)
        ledger = self._of(queue)
        rows, options, vhost = ledger.rows, self._broker.half.options, self._vhost(queue)
        for number in numbers:
            topic = ledger.origins[rows.origin(number)].key.topic
            due = time + options.of(vhost, topic).interval_ms
            ledger.set(number, HalfState.PENDING, due, rows.checks(number) + 1)

    def parked(self, lsn: int, payload: Payload) -> None:
        queue, time, numbers, _ = decode_half_many(payload)
        ledger = self._of(queue)
        for number in numbers:
            ledger.set(number, HalfState.PARKED, time, ledger.rows.checks(number))

    def resumed(self, lsn: int, payload: Payload) -> None:
        queue, number, time = decode_half_resumed(payload)
        ledger = self._of(queue)
        topic = ledger.origins[ledger.rows.origin(number)].key.topic
        due = time + self._broker.half.options.of(self._vhost(queue), topic).timeout_ms
        ledger.set(number, HalfState.PENDING, due, 0)

    def state(self, lsn: int, payload: Payload) -> None:
        """Take over a part of a snapshot."""
        queue, origins, rows = decode_half_states(payload)
        ledger = self._of(queue)
        for number, key in origins:
            ledger.origins.restore(key, number)
        ledger.restore(rows)

    def _vhost(self, queue: int) -> str:
        vhost = self._vhosts.get(queue)
        if vhost is None:
            hidden = (found for found in self._broker.directory.durable_queues() if found.ident == queue)
            vhost = self._vhosts[queue] = next((found.vhost for found in hidden), "")
        return vhost

    def queue_deleted(self, fields: dict[str, Any]) -> None:
        """Note that a queue was deleted, with its virtual host."""
        self._ledgers.pop(fields["id"], None)
        self._vhosts.pop(fields["id"], None)
        self._origins.clear()

    def finish(self) -> None:
        """Restore the half messages. Their queues are filled already."""
        for queue in list(self._broker.directory.durable_queues()):
            ledger = self._ledgers.get(queue.ident)
            if ledger is not None and isinstance(queue, HalfQueue):
                self._broker.half.restore(queue, ledger)
