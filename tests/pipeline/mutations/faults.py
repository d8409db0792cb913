"""Single faults, planted in records of valid journals. `FAULTS` has them by name, with the kinds of records changed.

A fault takes a journal and yields changed copies of it, in random order.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.records.branches import PUBLICATION, Item
from escrowmq.core.records.changes import decode_change, encode_change
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.moves import decode_moves
from escrowmq.core.records.queue_state import decode_returned, encode_returned
from escrowmq.journal import removals
from escrowmq.journal.removals import Hole
from tests.pipeline.mutations.rewriting import Copy, Record, digest_of, items_of, operations_of

Copies = Iterator[Copy]
Plant = Callable[[Copy, random.Random], Copies]
_LISTS: Final = (Kind.COMMIT, Kind.HEURISTIC, Kind.DECIDE)
UNKNOWN: Final = 900
_OUTCOME_AT: Final = 4
_PLAIN: Final = (Outcome.ACCEPTED, Outcome.PURGED, Outcome.REJECTED)


class Part(NamedTuple):
    """A record, or an operation in one: frame, number of the record in it, offset and length of the payload."""

    frame: int
    number: int
    at: int
    length: int

    def of(self, copy: Copy) -> bytes:
        payload = copy.frames[self.frame].records[self.number].payload
        return payload[self.at : self.at + self.length]

    def put(self, copy: Copy, at: int, data: bytes) -> Copy:
        """Return a copy of the journal with `data` at the offset `at` of this part."""
        changed = copy.twin()
        record = changed.frames[self.frame].records[self.number]
        at += self.at
        record.payload = record.payload[:at] + data + record.payload[at + len(data) :]
        return changed


def parts(copy: Copy, kind: int, rng: random.Random, inside: Sequence[int] = _LISTS) -> list[Part]:
    """All parts of a kind, in random order: records, and operations in records of the kinds `inside`."""
    found = []
    for number, frame in enumerate(copy.frames):
        for i, record in enumerate(frame.records):
            if record.kind == kind:
                found.append(Part(number, i, 0, len(record.payload)))
            elif record.kind in inside:
                found += [
                    Part(number, i, at, len(part))
                    for what, at, part in operations_of(record.kind, record.payload)
                    if what == kind
                ]
    rng.shuffle(found)
    return found


def alone(copy: Copy, kinds: Sequence[int], rng: random.Random) -> list[tuple[int, int]]:
    """All records of these kinds as (frame, number of the record in it), in random order."""
    found = [
        (number, i)
        for number, frame in enumerate(copy.frames)
        for i, record in enumerate(frame.records)
        if record.kind in kinds
    ]
    rng.shuffle(found)
    return found


def dropped(*kinds: int) -> Plant:
    """A record is missing that a later snapshot presupposes."""

    def plant(copy: Copy, rng: random.Random) -> Copies:
        last = max((snapshot.lsn for snapshot in copy.snapshots), default=0)
        for number, i in alone(copy, kinds, rng):
            if copy.frames[number].lsn >= last:
                continue  # no snapshot presupposes it
            changed = copy.twin()
            del changed.frames[number].records[i]
            yield changed

    return plant


def note_dropped(copy: Copy, rng: random.Random) -> Copies:
    """A record of removed segments is missing."""
    for number, i in alone(copy, (Kind.REMOVED,), rng):
        changed = copy.twin()
        del changed.frames[number].records[i]
        yield changed


def other_holes(copy: Copy, rng: random.Random) -> Copies:
    """The newest record of removed segments lacks a hole, or has a shorter one, or another link."""
    frame, i = copy.records(Kind.REMOVED)[-1] if copy.records(Kind.REMOVED) else (None, 0)
    if frame is None:
        return
    number = copy.frames.index(frame)
    holes = removals.decode(frame.records[i].payload)
    which = rng.randrange(len(holes))
    hole = holes[which]
    shorter = hole._replace(end_lsn=hole.end_lsn - 8, link=removals.UNKNOWN)
    linked = hole._replace(link=hole.link[:11] + bytes((hole.link[11] ^ 1,)))
    others: list[list[Hole]] = [[], [shorter], [linked]]
    rng.shuffle(others)
    for other in others:
        changed = copy.twin()
        changed.frames[number].records[i].payload = removals.encode([*holes[:which], *other, *holes[which + 1 :]])
        yield changed


def segment_removed(copy: Copy, rng: random.Random) -> Copies:
    """A segment is missing that the broker has not deleted."""
    begins = [number for number, frame in enumerate(copy.frames) if frame.begins_segment]
    segments = list(pairwise(begins))
    rng.shuffle(segments)
    for begin, end in segments:
        changed = copy.twin()
        del changed.frames[begin:end]
        yield changed


def doubled(*kinds: int) -> Plant:
    """A record is in the log twice, the second time at the end of its frame or of a later one."""

    def plant(copy: Copy, rng: random.Random) -> Copies:
        for number, i in alone(copy, kinds, rng):
            changed = copy.twin()
            again = changed.frames[rng.randrange(number, len(changed.frames))]
            again.records.append(copy.frames[number].records[i].twin())
            yield changed

    return plant


def moved(*kinds: int) -> Plant:
    """A record is at the beginning of the log, before what it concerns."""

    def plant(copy: Copy, rng: random.Random) -> Copies:
        for number, i in alone(copy, kinds, rng):
            if number or i:
                changed = copy.twin()
                record = changed.frames[number].records.pop(i)
                changed.frames[0].records.insert(0, record)
                yield changed

    return plant


def _blocks(copy: Copy, kind: int, rng: random.Random) -> Iterator[tuple[Part, int]]:
    """The parts of a kind that have a block, each with the block's offset."""
    if kind == Kind.PREPARE:
        for part in parts(copy, Kind.PREPARE, rng, ()):
            for item, at, _ in items_of(part.of(copy)):
                if item == Item.RUN:
                    yield part, at + PUBLICATION.size + 4 * PUBLICATION.unpack_from(part.of(copy), at)[1]
        return
    if kind == Kind.RELOCATE:
        for part in parts(copy, Kind.RELOCATE, rng, ()):
            yield part, decode_moves(part.of(copy))[1]
        return
    inside = (Kind.COMMIT,) if kind == Kind.COMMIT else ()
    for part in parts(copy, Kind.PUBLISH, rng, inside):
        if (part.at > 0) == (kind == Kind.COMMIT):
            yield part, 4 + 12 * int.from_bytes(part.of(copy)[:4], "little")


def other_body(kind: int) -> Plant:
    """A bit of a body is another one."""

    def plant(copy: Copy, rng: random.Random) -> Copies:
        for part, block in _blocks(copy, kind, rng):
            data = part.of(copy)
            length, _, count, envelope = struct.unpack_from("<IQII", data, block)
            begin, end = block + 20 + envelope + 4 * count, block + 4 + length
            if begin < end:
                at = rng.randrange(begin, end)
                yield part.put(copy, at, bytes((data[at] ^ 1 << rng.randrange(8),)))

    return plant


def with_later(plant: Plant) -> Plant:
    """Like `plant`, but only in frames that a later one follows."""

    def planted(copy: Copy, rng: random.Random) -> Copies:
        last = copy.frames[-1]
        for changed in plant(copy, rng):
            if changed.frames[-1] == last:
                yield changed

    return planted


def with_next_digest(plant: Plant) -> Plant:
    """Like `plant`, and the digest of the frame in the next one is right again. A later frame follows that one."""

    def planted(copy: Copy, rng: random.Random) -> Copies:
        for changed in plant(copy, rng):
            number = next(n for n, frame in enumerate(changed.frames) if frame != copy.frames[n])
            if number + 2 < len(copy.frames):
                changed.frames[number + 1].records[-1].payload = digest_of(changed.frames[number])
                yield changed

    return planted


def with_all_digests(plant: Plant) -> Plant:
    """Like `plant`, and the digests of all frames are right again."""

    def planted(copy: Copy, rng: random.Random) -> Copies:
        for changed in plant(copy, rng):
            changed.digested = True
            yield changed

    return planted


def other_envelope(kind: int) -> Plant:
    """The priority of messages is another one."""

    def plant(copy: Copy, rng: random.Random) -> Copies:
        for part, block in _blocks(copy, kind, rng):
            yield part.put(copy, block + 20 + 2, bytes((part.of(copy)[block + 22] ^ 4,)))

    return plant


def put_in(kind: int) -> Plant:
    """There is a record that the broker has not written."""

    def plant(copy: Copy, rng: random.Random) -> Copies:
        for frame in rng.sample(range(len(copy.frames)), len(copy.frames)):
            changed = copy.twin()
            changed.frames[frame].records.append(Record(kind, bytes(64)))
            yield changed

    return plant


def other_outcome(outcome: Outcome, *reasons: str) -> Plant:
    """A message leaves with an outcome for which its queue has no reason. `reasons` are arguments that would be one."""

    def plant(copy: Copy, rng: random.Random) -> Copies:
        declared = [decode_change(record.payload) for record in _records(copy, Kind.QUEUE_DECLARED)]
        exempt = {fields["id"] for fields in declared if fields["arguments"].keys() & set(reasons)}
        for part in parts(copy, Kind.SETTLE, rng):
            data = part.of(copy)
            if data[_OUTCOME_AT] in _PLAIN and int.from_bytes(data[:4], "little") not in exempt:
                yield part.put(copy, _OUTCOME_AT, bytes((outcome,)))

    return plant


def expired_early(copy: Copy, rng: random.Random) -> Copies:
    """A message expires at the time at which the log begins."""
    for part in parts(copy, Kind.SETTLE, rng, ()):
        if part.of(copy)[_OUTCOME_AT] == Outcome.EXPIRED:
            changed = copy.twin()
            changed.frames[part.frame].time_us = copy.frames[0].time_us
            yield changed


def other_count(copy: Copy, rng: random.Random) -> Copies:
    """The count of a message's returns is another one."""
    for part in parts(copy, Kind.RETURNED, rng, ()):
        queue, counts = decode_returned(part.of(copy))
        i = rng.randrange(len(counts))
        counts[i] = (counts[i][0], counts[i][1] + rng.choice((2, 3)))
        yield part.put(copy, 0, encode_returned(queue, counts))


def other_failures(copy: Copy, rng: random.Random) -> Copies:
    """The number of a message's failed deliveries is another one."""
    for part in parts(copy, Kind.MARKED, rng, ()):
        yield part.put(copy, 8 + 8, struct.pack("<I", struct.unpack_from("<I", part.of(copy), 16)[0] + 5))


def other_delivery(copy: Copy, rng: random.Random) -> Copies:
    """A record of deliveries names other positions."""
    for part in parts(copy, Kind.DELIVERIES, rng, ()):
        data = part.of(copy)
        at = 16 + 7 + struct.unpack_from("<H", data, 17)[0]
        yield part.put(copy, at, struct.pack("<Q", struct.unpack_from("<Q", data, at)[0] + rng.choice((50, 70))))


def unknown_queue(kind: int) -> Plant:
    """A record names a queue that was never declared."""

    def plant(copy: Copy, rng: random.Random) -> Copies:
        for part in parts(copy, kind, rng):
            yield part.put(copy, 4 if kind == Kind.PUBLISH else 0, struct.pack("<I", UNKNOWN))

    return plant


def deleted_before(copy: Copy, rng: random.Random) -> Copies:
    """A queue is deleted, and records name it afterwards."""
    for number, i in alone(copy, (Kind.SETTLE, Kind.RETURNED, Kind.DELIVERIES, Kind.RELOCATE), rng):
        payload = copy.frames[number].records[i].payload
        (queue,) = struct.unpack_from("<I", payload, 2 if copy.frames[number].records[i].kind == Kind.RELOCATE else 0)
        for record in _records(copy, Kind.QUEUE_DECLARED):
            fields = decode_change(record.payload)
            if fields["id"] == queue:
                gone = encode_change(vhost=fields["vhost"], id=queue, name=fields["name"])
                changed = copy.twin()
                changed.frames[number].records.insert(0, Record(Kind.QUEUE_DELETED, gone))
                yield changed


def _records(copy: Copy, kind: int) -> Iterator[Record]:
    for frame, i in copy.records(kind):
        yield frame.records[i]


def unknown_binding(copy: Copy, rng: random.Random) -> Copies:
    """A binding is removed that does not exist."""
    for number, i in alone(copy, (Kind.BOUND,), rng):
        fields = decode_change(copy.frames[number].records[i].payload)
        changed = copy.twin()
        gone = encode_change(**{**fields, "key": "another"})
        changed.frames[rng.randrange(number, len(changed.frames))].records.append(Record(Kind.UNBOUND, gone))
        yield changed


def epoch_back(copy: Copy, rng: random.Random) -> Copies:
    """An application decides an epoch that is before its last one."""
    epochs: list[int] = []
    for part in sorted(parts(copy, Kind.DECIDE, rng, ())):
        data = part.of(copy)
        epoch, name = struct.unpack_from("<qH", data)
        if not name:
            continue
        if epochs:
            yield part.put(copy, 0, struct.pack("<q", min(epochs) - 1))
        epochs.append(epoch)


def branch_again(copy: Copy, rng: random.Random) -> Copies:
    """A branch has the number of an earlier one."""
    found = [part for part in parts(copy, Kind.COMMIT, rng, ()) if struct.unpack_from("<Q", part.of(copy))[0]]
    for one, other in pairwise(found):
        if one.of(copy)[:8] != other.of(copy)[:8]:
            yield one.put(copy, 0, other.of(copy)[:8])


def other_digest(copy: Copy, rng: random.Random) -> Copies:
    """The digest of a frame is another one."""
    for part in parts(copy, Kind.DIGEST, rng, ()):
        yield part.put(copy, 16, bytes((part.of(copy)[16] ^ 1,)))


class Fault(NamedTuple):
    """A kind of fault.

    Args:
        plant: yields journals with the fault.
        kinds: the kinds of records that it changes.
    """

    plant: Plant
    kinds: tuple[int, ...]


def _three(name: str, *kinds: int) -> dict[str, Fault]:
    return {
        f"{name} dropped": Fault(dropped(*kinds), kinds),
        f"{name} doubled": Fault(doubled(*kinds), kinds),
        f"{name} moved": Fault(moved(*kinds), kinds),
    }


FAULTS: Final[dict[str, Fault]] = {
    **_three("settlement", Kind.SETTLE),
    **_three("publish", Kind.PUBLISH),
    **_three("commit", Kind.COMMIT),
    **_three("rollback", Kind.ROLLBACK),
    **_three("decision", Kind.DECIDE, Kind.HEURISTIC),
    **_three("hold", Kind.HELD),
    **_three("forgotten branch", Kind.FORGET),
    "prepare doubled": Fault(doubled(Kind.PREPARE), (Kind.PREPARE,)),
    "relocation moved": Fault(moved(Kind.RELOCATE, Kind.READDRESSED), (Kind.RELOCATE, Kind.READDRESSED)),
    "expired without a time to live": Fault(other_outcome(Outcome.EXPIRED, "x-message-ttl"), (Kind.SETTLE,)),
    "expired before its time": Fault(expired_early, (Kind.SETTLE,)),
    "dropped without a limit": Fault(other_outcome(Outcome.DROPPED, "x-max-length"), (Kind.SETTLE,)),
    "left at a limit that was not reached": Fault(other_outcome(Outcome.DELIVERY_LIMIT), (Kind.SETTLE,)),
    "returns miscounted": Fault(other_count, (Kind.RETURNED,)),
    "return dropped": Fault(dropped(Kind.RETURNED), (Kind.RETURNED,)),
    "failures miscounted": Fault(other_failures, (Kind.MARKED,)),
    "delivery of another position": Fault(other_delivery, (Kind.DELIVERIES,)),
    "publish to an unknown queue": Fault(unknown_queue(Kind.PUBLISH), (Kind.PUBLISH,)),
    "settlement on an unknown queue": Fault(unknown_queue(Kind.SETTLE), (Kind.SETTLE,)),
    "return to an unknown queue": Fault(unknown_queue(Kind.RETURNED), (Kind.RETURNED,)),
    "record after the queue's deletion": Fault(deleted_before, (Kind.QUEUE_DELETED,)),
    "unknown binding removed": Fault(unknown_binding, (Kind.UNBOUND,)),
    "queue's declaration dropped": Fault(dropped(Kind.QUEUE_DECLARED), (Kind.QUEUE_DECLARED,)),
    "exchange's declaration dropped": Fault(dropped(Kind.EXCHANGE_DECLARED), (Kind.EXCHANGE_DECLARED,)),
    "binding dropped": Fault(dropped(Kind.BOUND), (Kind.BOUND,)),
    "note of transient bindings dropped": Fault(dropped(Kind.TRANSIENT_BOUND), (Kind.TRANSIENT_BOUND,)),
    "user or virtual host dropped": Fault(
        dropped(Kind.USER_SET, Kind.VHOST_SET, Kind.PERMISSION_SET),
        (Kind.USER_SET, Kind.VHOST_SET, Kind.PERMISSION_SET),
    ),
    **_three("end of a virtual host", Kind.VHOST_DELETED),
    **_three("end of an exchange", Kind.EXCHANGE_DELETED),
    **_three("end of a user", Kind.USER_DELETED),
    **_three("end of a permission", Kind.PERMISSION_DELETED),
    **_three("end of a topic permission", Kind.TOPIC_PERMISSION_DELETED),
    **_three("end of a policy", Kind.POLICY_DELETED),
    **_three("end of a parameter", Kind.PARAMETER_DELETED),
    "policy or parameter dropped": Fault(
        dropped(Kind.POLICY_SET, Kind.PARAMETER_SET), (Kind.POLICY_SET, Kind.PARAMETER_SET)
    ),
    "topic permission dropped": Fault(dropped(Kind.TOPIC_PERMISSION_SET), (Kind.TOPIC_PERMISSION_SET,)),
    "epoch goes back": Fault(epoch_back, (Kind.DECIDE,)),
    "branch number used twice": Fault(branch_again, (Kind.COMMIT,)),
    **{
        f"body altered in {kind.name}": Fault(with_later(other_body(kind)), (kind,))
        for kind in (Kind.PUBLISH, Kind.PREPARE, Kind.COMMIT, Kind.RELOCATE)
    },
    "body altered, with its digest": Fault(with_next_digest(other_body(Kind.PUBLISH)), (Kind.PUBLISH, Kind.DIGEST)),
    "envelope altered in PUBLISH": Fault(with_later(other_envelope(Kind.PUBLISH)), (Kind.PUBLISH,)),
    "digest dropped": Fault(with_later(dropped(Kind.DIGEST)), (Kind.DIGEST,)),
    "digest moved": Fault(moved(Kind.DIGEST), (Kind.DIGEST,)),
    "digest altered": Fault(other_digest, (Kind.DIGEST,)),
    "record of removed segments dropped": Fault(note_dropped, (Kind.REMOVED,)),
    "record of removed segments altered": Fault(other_holes, (Kind.REMOVED,)),
    "segment removed": Fault(segment_removed, (Kind.REMOVED,)),
}

SINCE_AN_AUDIT: Final[dict[str, Fault]] = {
    "body altered": Fault(other_body(Kind.PUBLISH), (Kind.PUBLISH,)),
    "prepare dropped": Fault(dropped(Kind.PREPARE), (Kind.PREPARE,)),
    "prepare moved": Fault(moved(Kind.PREPARE), (Kind.PREPARE,)),
    "failure dropped": Fault(dropped(Kind.MARKED), (Kind.MARKED,)),
    "return dropped": Fault(dropped(Kind.RETURNED), (Kind.RETURNED,)),
    "relocation dropped": Fault(dropped(Kind.RELOCATE, Kind.READDRESSED), (Kind.RELOCATE, Kind.READDRESSED)),
    **{f"{kind.name} put in": Fault(put_in(kind), (kind,)) for kind in Kind},
}
"""Faults that the log does not show, or not in all places. The chain shows them if an audit has seen the log before."""

ONLY_SINCE_AN_AUDIT: Final = frozenset(
    {
        Kind.QUEUE_STATE,
        Kind.PAGE,
        Kind.COUNTERS,
        Kind.PROGRESS,
        Kind.HALF_STATE,
        Kind.OPERATED,
    }
)
"""Kinds of records for which FAULTS has no fault. Faults in some of them are in the modules planted_*.py."""
