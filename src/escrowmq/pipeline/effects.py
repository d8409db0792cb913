"""Compare the effects that a branch prepared with the effects that its commit applied."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any


def difference(
    prepared: list[str], applied: list[str], deleted: Collection[int] = (), prepare_lsn: int = 0
) -> str | None:
    """Describe how the applied effects differ from the prepared ones; None if they agree.

    Some differences are allowed: effects on queues that have been deleted since (TX-11), dead-lettering of rejected
    messages, dead-lettering of returned messages that have exceeded their delivery limit, and messages settled by a
    bulk reader's group.

    Args:
        prepared: the effects of the PREPARE record.
        applied: the effects of the record that commits the branch.
        deleted: the numbers of deleted queues.
        prepare_lsn: the LSN of the PREPARE record.
    """
    wanted, found = Effects(prepared), Effects(applied)
    rejects = wanted.rejects or bool(wanted.returned or wanted.released)
    for queue in wanted.published.keys() | found.published.keys():
        more = found.published.get(queue, 0) - wanted.published.get(queue, 0)
        if (more < 0 and queue not in deleted) or (more > 0 and not rejects):
            expected = wanted.published.get(queue, 0)
            return f"{found.published.get(queue, 0)} messages were published to queue {queue}, {expected} were prepared"
    misplaced = _misplaced(wanted, found, prepare_lsn)
    if misplaced is not None:
        return f"the block at LSN {misplaced:#x} was placed on a queue, but had not been prepared"
    for queue, ends in found.released.items():
        if not ends <= wanted.released.get(queue, ends):
            return f"a group's reservation on queue {queue} was settled up to a different number than prepared"
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
                return f"position {min(extra)} of queue {queue} was settled, but had not been prepared"
    return None


def _misplaced(wanted: Effects, found: Effects, prepare_lsn: int) -> int | None:
    """Return the LSN of a block that was placed without having been prepared; None if there is none.

    A far block written after `prepare_lsn` may be a page, so it is not reported.
    """
    strange = (found.blocks | {lsn for lsn in found.far_blocks if lsn < prepare_lsn}) - wanted.blocks
    return min(strange) if strange and wanted.blocks else None


def changed(prepared: list[str], held: list[str], deleted: Collection[int] = ()) -> bool:
    """Return whether a branch's effects in a snapshot differ from the prepared ones. Deleted queues are ignored."""
    wanted, found = Effects(prepared), Effects(held)

    def left(effects: Effects) -> list[dict[int, Any]]:
        columns = (effects.published, effects.settled, effects.accepted, effects.returned, effects.released)
        return [{queue: each for queue, each in column.items() if queue not in deleted} for column in columns]

    return left(wanted) != left(found) or not found.blocks <= wanted.blocks


def falls_short(prepared: list[str], step: dict[str, Any], deleted: Collection[int]) -> str | None:
    """Compare a commit whose effects are not listed with the prepared ones, by its counts of messages.

    Returns a description of the difference, or None. Counts are known for every commit, effects only for few.
    """
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
    """A list of effects, indexed by queue."""

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
