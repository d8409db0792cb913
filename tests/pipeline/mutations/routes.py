"""Faults in the routes of messages, planted in records of valid journals. `ROUTE_FAULTS` has them by name."""

from __future__ import annotations

import random
import struct
from typing import Final

from escrowmq.core.records.changes import decode_change
from escrowmq.core.records.kinds import Kind
from tests.pipeline.mutations.faults import Copies, Part, Plant, parts
from tests.pipeline.mutations.rewriting import Copy

STRAY: Final = "stray"
"""The queue to which nothing leads."""
_TARGET_BYTES: Final = 12
_HIDDEN: Final = "amq."


def _queues(copy: Copy) -> dict[str, int]:
    found = [decode_change(frame.records[i].payload) for frame, i in copy.records(Kind.QUEUE_DECLARED)]
    return {fields["name"]: fields["id"] for fields in found}


def astray(kind: int) -> Plant:
    """A message is in a queue to which nothing leads, instead of the right one."""

    def plant(copy: Copy, rng: random.Random) -> Copies:
        for part in parts(copy, kind, rng):
            yield part.put(copy, 4, struct.pack("<I", _queues(copy)[STRAY]))

    return plant


def target_added(copy: Copy, rng: random.Random) -> Copies:
    """A message is in one queue more than it was routed to."""
    target = struct.pack("<IQ", _queues(copy)[STRAY], 1000)
    for part in parts(copy, Kind.PUBLISH, rng, ()):
        data = part.of(copy)
        changed = copy.twin()
        record = changed.frames[part.frame].records[part.number]
        record.payload = struct.pack("<I", struct.unpack_from("<I", data)[0] + 1) + target + data[4:]
        record.shifts.append((4, _TARGET_BYTES))
        yield changed


def target_dropped(copy: Copy, rng: random.Random) -> Copies:
    """A message is not in one of the queues to which it was routed."""
    for part in parts(copy, Kind.PUBLISH, rng, ()):
        data = part.of(copy)
        (number,) = struct.unpack_from("<I", data)
        if number < 2:
            continue
        changed = copy.twin()
        record = changed.frames[part.frame].records[part.number]
        record.payload = struct.pack("<I", number - 1) + data[4 + _TARGET_BYTES :]
        record.shifts.append((4 + _TARGET_BYTES, -_TARGET_BYTES))
        yield changed


def without(kind: int) -> Plant:
    """A change of the topology is missing from the log, and messages were routed by it."""

    def plant(copy: Copy, rng: random.Random) -> Copies:
        first: dict[bytes, Part] = {}
        for part in sorted(parts(copy, kind, rng, ())):
            first.setdefault(part.of(copy), part)
        for part in first.values():
            fields = decode_change(part.of(copy))
            if kind == Kind.UNBOUND and fields["source"] != "all":
                continue  # only a transaction was published while it was missing
            if fields.get("name", "").startswith(_HIDDEN) or fields.get("name") in (STRAY, "topic"):
                continue
            changed = copy.twin()
            del changed.frames[part.frame].records[part.number]
            yield changed

    return plant


ROUTE_FAULTS: Final[dict[str, Plant]] = {
    "published to a queue without a binding": astray(Kind.PUBLISH),
    "placed on a queue without a binding": astray(Kind.PLACED),
    "published to a queue more": target_added,
    "published to a queue less": target_dropped,
    "binding dropped": without(Kind.BOUND),
    "end of a binding dropped": without(Kind.UNBOUND),
}
