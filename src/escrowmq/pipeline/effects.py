"""What a branch does to queues: as it was prepared, and as it was applied."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any


def difference(
    prepared: list[str], applied: list[str], deleted: Collection[int] = (), prepare_lsn: int = 0
) -> str | None:
    """How what was applied differs from what was prepared, at `prepare_lsn`; None if it does not.

    Allowed are: what was to go to queues that were deleted meanwhile (TX-11), dead-lettering of what was rejected, what
    was to go back and has gone over its delivery limit, and what a bulk reader's group settles.
    """
    wanted, found = Effects(prepared), Effects(applied)
    rejects = wanted.rejects or bool(wanted.returned or wanted.released)
    for queue in wanted.published.keys() | found.published.keys():
        more = found.published.get(queue, 0) - wanted.published.get(queue, 0)
        if (more < 0 and queue not in deleted) or (more > 0 and not rejects):
            expected = wanted.published.get(queue, 0)
            return f"{found.published.get(queue, 0)} messages came to queue {queue}, {expected} were prepared"
    misplaced = _misplaced(wanted, found, prepare_lsn)
    if misplaced is not None:
        return f"what lies at LSN {misplaced:#x} came to a queue, and had not been prepared"
    for queue, ends in found.released.items():
        if not ends <= wanted.released.get(queue, ends):
            return f"what a group held of queue {queue} was settled up to another number than had been prepared"
    for queue, positions in wanted.settled.items():
        missing = positions - found.settled.get(queue, set())
        if missing and queue not in deleted:
            return f"position {min(missing)} of queue {queue} was not settled"
    for queue in wanted.settled.keys() & found.settled.keys():
        contrary = (wanted.accepted.get(queue, set()) ^ found.accepted.get(queue, set())) & wanted.settled[queue]
        if contrary & found.settled[queue]:
            return f"position {min(contrary)} of queue {queue} was not settled as prepared"
    for queue, positions in found.settled.items():
        if queue not in found.released:
            extra = positions - wanted.settled.get(queue, set()) - wanted.returned.get(queue, set())
            if extra:
                return f"position {min(extra)} of queue {queue} was settled, and had not been prepared"
    return None


def _misplaced(wanted: Effects, found: Effects, prepare_lsn: int) -> int | None:
    """A block that is placed and is not the branch's. What is not known for certain to be no page may lie in one, which
    is written between the branch and its outcome.
    """
    strange = (found.blocks | {lsn for lsn in found.far_blocks if lsn < prepare_lsn}) - wanted.blocks
    return min(strange) if strange and wanted.blocks else None


def changed(prepared: list[str], held: list[str], deleted: Collection[int] = ()) -> bool:
    """Whether a snapshot holds a branch otherwise than it was prepared; what was for deleted queues is left out."""
    wanted, found = Effects(prepared), Effects(held)

    def left(effects: Effects) -> list[dict[int, Any]]:
        columns = (effects.published, effects.settled, effects.accepted, effects.returned, effects.released)
        return [{queue: each for queue, each in column.items() if queue not in deleted} for column in columns]

    return left(wanted) != left(found) or not found.blocks <= wanted.blocks


def falls_short(prepared: list[str], step: dict[str, Any], deleted: Collection[int]) -> str | None:
    """The same by the sums that are known of every commit; effects are those of few."""
    wanted = Effects(prepared)
    places = {queue: len(positions) for queue, positions in wanted.settled.items()}
    for what, expected in (("published", wanted.published), ("settled", places)):
        least = sum(count for queue, count in expected.items() if queue not in deleted)
        if step[what] < least:
            return f"{step[what]} messages were {what}, {least} were prepared"
    most = sum(wanted.published.values())
    if step["published"] > most and not (wanted.rejects or wanted.returned or wanted.released):
        return f"{step['published']} messages were published, {most} were prepared"
    return None


class Effects:
    """Effects, by queue."""

    def __init__(self, effects: list[str]) -> None:
        self.published: dict[int, int] = {}
        self.settled: dict[int, set[int]] = {}
        self.returned: dict[int, set[int]] = {}
        self.accepted: dict[int, set[int]] = {}
        self.released: dict[int, set[int]] = {}
        self.blocks: set[int] = set()
        self.far_blocks: set[int] = set()
        self.rejects = False
        for effect in effects:
            verb, *numbers = effect.split()
            queue, *rest = map(int, numbers)
            if verb in ("publish", "place", "fetch"):
                self.published[queue] = self.published.get(queue, 0) + rest[0]
                (self.far_blocks if verb == "fetch" else self.blocks).update(rest[1:])
            elif verb == "release":
                self.released.setdefault(queue, set()).update(rest)
            else:
                self.rejects |= verb == "reject"
                places = self.returned if verb == "return" else self.settled
                places.setdefault(queue, set()).update(range(rest[0], rest[0] + rest[1]))
                if verb == "settle":
                    self.accepted.setdefault(queue, set()).update(range(rest[0], rest[0] + rest[1]))
