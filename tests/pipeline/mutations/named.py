"""Faults in records that name queues, link termini, consumer groups, applications or virtual hosts.

The digests of all frames are made right again, so only the rules about names show these faults.
"""

from __future__ import annotations

import random
import struct
from typing import Final

from escrowmq.core.records.changes import decode_change, encode_change
from escrowmq.core.records.kinds import Kind
from tests.pipeline.mutations.faults import (
    UNKNOWN,
    Copies,
    Fault,
    Plant,
    alone,
    doubled,
    dropped,
    moved,
    parts,
    with_all_digests,
)
from tests.pipeline.mutations.rewriting import Copy, Record


def other_number(kind: int, at: int = 0, number: int = UNKNOWN) -> Plant:
    """A record names another number at the offset `at`, which nothing has."""

    def plant(copy: Copy, rng: random.Random) -> Copies:
        for part in parts(copy, kind, rng):
            yield part.put(copy, at, struct.pack("<I", number))

    return plant


def other_vhost(kind: int) -> Plant:
    """A change names a virtual host that does not exist."""

    def plant(copy: Copy, rng: random.Random) -> Copies:
        for number, i in alone(copy, (kind,), rng):
            changed = copy.twin()
            record = changed.frames[number].records[i]
            record.payload = encode_change(**{**decode_change(record.payload), "vhost": "nowhere"})
            yield changed

    return plant


def named_after_deletion(deleted: int, *kinds: int) -> Plant:
    """A link terminus or a consumer group is deleted, and records of these kinds name it afterwards."""

    def plant(copy: Copy, rng: random.Random) -> Copies:
        for number, i in alone(copy, kinds, rng):
            (named,) = struct.unpack_from("<I", copy.frames[number].records[i].payload)
            changed = copy.twin()
            changed.frames[number].records.insert(0, Record(deleted, encode_change(number=named)))
            yield changed

    return plant


_NAMING: Final = {
    **dict.fromkeys((Kind.ARRIVED, Kind.FORGOTTEN, Kind.ACQUIRED, Kind.GIVEN_BACK), "link terminus"),
    **dict.fromkeys((Kind.GROUP_LEASED, Kind.GROUP_SETTLED, Kind.GROUP_PROGRESS, Kind.GROUP_LOCKED), "consumer group"),
    **dict.fromkeys(
        (Kind.HALF_STORED, Kind.HALF_DECIDED, Kind.HALF_CHECKED, Kind.HALF_PARKED, Kind.HALF_RESUMED), "queue"
    ),
    **dict.fromkeys((Kind.DELIVERED, Kind.PLACED, Kind.HELD, Kind.RELEASED), "queue"),
}
NAMED: Final[dict[str, Fault]] = {
    **{
        f"{kind.name} of an unknown {what}": Fault(
            with_all_digests(other_number(kind, 4 if kind == Kind.PLACED else 0)), (kind,)
        )
        for kind, what in _NAMING.items()
    },
    "link terminus dropped": Fault(with_all_digests(dropped(Kind.TERMINUS_SET)), (Kind.TERMINUS_SET,)),
    "end of a link terminus doubled": Fault(with_all_digests(doubled(Kind.TERMINUS_DELETED)), (Kind.TERMINUS_DELETED,)),
    "end of a link terminus moved": Fault(with_all_digests(moved(Kind.TERMINUS_DELETED)), (Kind.TERMINUS_DELETED,)),
    "link terminus named after its end": Fault(
        with_all_digests(named_after_deletion(Kind.TERMINUS_DELETED, Kind.ACQUIRED, Kind.GIVEN_BACK, Kind.FORGOTTEN)),
        (Kind.TERMINUS_DELETED,),
    ),
    "policies applied elsewhere": Fault(with_all_digests(other_vhost(Kind.POLICIES_APPLIED)), (Kind.POLICIES_APPLIED,)),
    "owner of progress dropped": Fault(with_all_digests(dropped(Kind.PROGRESS_OWNED)), (Kind.PROGRESS_OWNED,)),
    "end of progress dropped": Fault(with_all_digests(dropped(Kind.PROGRESS_RESET)), (Kind.PROGRESS_RESET,)),
    "end of progress doubled": Fault(with_all_digests(doubled(Kind.PROGRESS_RESET)), (Kind.PROGRESS_RESET,)),
    "consumer group dropped": Fault(with_all_digests(dropped(Kind.GROUP_SET)), (Kind.GROUP_SET,)),
    "consumer group named after its end": Fault(
        with_all_digests(named_after_deletion(Kind.GROUP_DELETED, Kind.GROUP_LEASED, Kind.GROUP_PROGRESS)),
        (Kind.GROUP_DELETED,),
    ),
}
