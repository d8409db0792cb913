"""What a branch does to queues: as it was prepared, and as it was applied."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any


def difference(prepared: list[str], applied: list[str], deleted: Collection[int] = ()) -> str | None:
    """How what was applied differs from what was prepared; None if it does not.

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
    for queue, positions in wanted.settled.items():
        missing = positions - found.settled.get(queue, set())
        if missing and queue not in deleted:
            return f"position {min(missing)} of queue {queue} was not settled"
    for queue, positions in found.settled.items():
        if queue not in wanted.released:
            extra = positions - wanted.settled.get(queue, set()) - wanted.returned.get(queue, set())
            if extra:
                return f"position {min(extra)} of queue {queue} was settled, and had not been prepared"
    return None


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
        self.released: set[int] = set()
        self.rejects = False
        for effect in effects:
            verb, *numbers = effect.split()
            queue, *rest = map(int, numbers)
            if verb == "publish":
                self.published[queue] = self.published.get(queue, 0) + rest[0]
            elif verb == "release":
                self.released.add(queue)
            else:
                self.rejects |= verb == "reject"
                places = self.returned if verb == "return" else self.settled
                places.setdefault(queue, set()).update(range(rest[0], rest[0] + rest[1]))
