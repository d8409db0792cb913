"""Recovery of termini, with the tags and the locked messages that are unsettled on them (SET-9, SET-10)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.records.blocks import decode_block
from escrowmq.core.records.changes import decode_change
from escrowmq.core.records.publishing import decode_publish
from escrowmq.core.records.references import Range, merged
from escrowmq.core.records.termini import (
    NumberedRange,
    decode_acquired,
    decode_arrived,
    decode_forgotten,
    decode_given_back,
)
from escrowmq.core.termini.arrivals import fingerprints_of
from escrowmq.core.termini.locks import LockedPiece, locked_pieces
from escrowmq.core.termini.terminus import (
    Durability,
    ExpiryPolicy,
    LinkRole,
    Terminus,
    TerminusKey,
    TerminusSettings,
)

if TYPE_CHECKING:
    from escrowmq.core.broker import Broker
    from escrowmq.core.queues.backlog import Backlog
    from escrowmq.core.queues.queue import Queue

Payload = bytes | memoryview


class _FoundTerminus:
    """One terminus as found in the records."""

    __slots__ = ("acquired", "fields", "given_back", "next_delivery", "pieces", "tags")

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields
        self.tags: dict[bytes, bytes] = {}
        self.next_delivery = 1
        self.acquired: dict[int, list[NumberedRange]] = {}  # by queue id
        self.given_back: dict[int, dict[int, int]] = {}  # by queue id: positions, and the next number at that time
        self.pieces: list[LockedPiece] = []

    def still_acquired(self, queue: int) -> list[NumberedRange]:
        """Return the ranges of messages that were not given back after they were acquired."""
        acquired, back = self.acquired.pop(queue, []), self.given_back.pop(queue, {})
        if not back:
            return acquired
        found = []
        for number, first, length in acquired:
            begin = 0
            for i in range(length + 1):
                if i < length and back.get(first + i, 0) <= number + i:
                    continue
                if i > begin:
                    found.append(NumberedRange(number + begin, first + begin, i - begin))
                begin = i + 1
        return found


class FoundTermini:
    """Durable termini found in the records, by number."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._found: dict[int, _FoundTerminus] = {}

    # -- while records are applied

    def set(self, lsn: int, payload: Payload) -> None:
        """Apply a TERMINUS_SET record."""
        fields = decode_change(payload)
        number = fields["number"]
        self._broker.termini.seen(number)
        found = self._found.get(number)
        if found is None:
            found = self._found[number] = _FoundTerminus(fields)
        found.fields = fields
        found.next_delivery = max(found.next_delivery, fields["next_delivery"])

    def deleted(self, lsn: int, payload: Payload) -> None:
        """Apply a TERMINUS_DELETED record."""
        self._found.pop(decode_change(payload)["number"], None)

    def arrived(self, lsn: int, payload: Payload, published: Payload = b"") -> None:
        """Apply an ARRIVED record or operation. `published` is the PUBLISH operation before it in its COMMIT."""
        arrived = decode_arrived(payload)
        found = self._found.get(arrived.terminus)
        if found is None:
            return
        fingerprints = arrived.fingerprints
        if fingerprints is None:
            fingerprints = fingerprints_of(decode_block(published, decode_publish(published).block).contents)
        found.tags.update(zip(arrived.tags, fingerprints, strict=True))

    def forgotten(self, lsn: int, payload: Payload) -> None:
        """Apply a FORGOTTEN record."""
        forgotten = decode_forgotten(payload)
        found = self._found.get(forgotten.terminus)
        if found is not None:
            for tag in forgotten.tags:
                found.tags.pop(tag, None)

    def acquired(self, lsn: int, payload: Payload) -> tuple[int, int]:
        """Apply an ACQUIRED record. Return the queue id, and the position after the last one that it names."""
        acquired = decode_acquired(payload)
        found = self._found.get(acquired.terminus)
        if found is not None:
            ranges = found.acquired.setdefault(acquired.queue, [])
            for each in acquired.ranges:
                last = ranges[-1] if ranges else None
                if last is not None and each[:2] == (last.number + last.length, last.first + last.length):
                    ranges[-1] = last._replace(length=last.length + each.length)
                else:
                    ranges.append(each)
                found.next_delivery = max(found.next_delivery, each.number + each.length)
        return acquired.queue, max((each.first + each.length for each in acquired.ranges), default=0)

    def given_back(self, lsn: int, payload: Payload) -> None:
        """Apply a GIVEN_BACK record."""
        back = decode_given_back(payload)
        found = self._found.get(back.terminus)
        if found is not None:
            positions = found.given_back.setdefault(back.queue, {})
            for first, length in back.ranges:
                positions.update(dict.fromkeys(range(first, first + length), found.next_delivery))

    # -- at the end

    def lock(self, queue: Queue, references: Backlog, deliveries: dict[int, int]) -> None:
        """Take the messages that termini have acquired out of `references`, which hold all messages of the queue that
        are not settled.
        """
        locked: list[Range] = []
        for found in self._found.values():
            for each in found.still_acquired(queue.ident):
                for piece in locked_pieces(queue, each, references, deliveries):
                    found.pieces.append(piece)
                    locked.append(Range(piece.reference.first, piece.reference.length))
        if locked:
            references.remove(merged(locked))

    def finish(self) -> None:
        """Restore the termini. They are suspended, as if their connections had been lost now."""
        broker = self._broker
        for number, found in self._found.items():
            fields = found.fields
            key = TerminusKey(fields["vhost"], fields["container"], fields["link"], LinkRole(fields["role"]))
            settings = TerminusSettings(
                Durability(fields["durability"]),
                ExpiryPolicy(fields["policy"]),
                fields["timeout_ms"],
                fields["second"],
                fields["address"],
                fields["data"],
                Disposition[fields["default"]],
            )
            terminus = Terminus(broker.engine, key, settings, fields["user"], number)
            terminus.arrivals.restore(found.tags)
            terminus.deliveries.restart_at(found.next_delivery)
            for piece in sorted(found.pieces, key=lambda piece: piece.number):
                terminus.deliveries.locks.add(piece)
            broker.termini.restore(terminus)
