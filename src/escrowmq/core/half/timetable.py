"""When the half messages of a virtual host are due for a check: one queue for each delay (HALF-4).

A number is in at most one of the lists. Numbers whose half messages were decided meanwhile stay there until they reach
the front, so that a decision costs nothing here.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from escrowmq.core.half.state import HalfState

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from escrowmq.core.half.rows import Rows


class Timetable:
    """Numbers by the delay after which they are due; those that wait for a producer of their group; and overdue ones.

    `decided` holds numbers in the order of their decisions, for as long as their outcomes are known.
    """

    __slots__ = ("_delayed", "_overdue", "_waiting", "decided")

    def __init__(self) -> None:
        self._delayed: dict[int, deque[int]] = {}
        self._waiting: dict[str, dict[str, deque[int]]] = {}  # by group and user
        self._overdue: deque[tuple[str, str, deque[int]]] = deque()  # group, user, numbers
        self.decided: deque[int] = deque()

    def add(self, number: int, delay_ms: int) -> bool:
        """Do `add_each` for one half message."""
        return self.add_each((number,), delay_ms)

    def add_each(self, numbers: Sequence[int], delay_ms: int) -> bool:
        """Add half messages that are due `delay_ms` from now. Return whether they are the first with this delay."""
        delayed = self._delayed.get(delay_ms)
        if delayed is None:
            delayed = self._delayed[delay_ms] = deque()
        is_first = not delayed
        delayed.extend(numbers)
        return is_first

    def restore(self, pending: Iterable[int], decided: Iterable[int]) -> None:
        """Add the half messages that recovery found: those that wait in order of their due times, those that are
        decided in order of their decisions.
        """
        self._delayed[-1] = deque(pending)
        self.decided = deque(decided)

    def wait(self, group: str, user: str, number: int) -> None:
        """Note that a half message of `user` which is due waits for a producer of its group."""
        self._waiting.setdefault(group, {}).setdefault(user, deque()).append(number)

    def rest_waits(self, group: str, user: str) -> None:
        """Let those that were made due with the last number wait again behind it, if they are of this group and user.

        There may be a hundred thousand, so none of them is looked at.
        """
        if self._overdue and self._overdue[0][:2] == (group, user):
            _, _, numbers = self._overdue.popleft()
            waiting = self._waiting.setdefault(group, {})
            numbers.extendleft(reversed(waiting.get(user, ())))
            waiting[user] = numbers

    def wake(self, group: str) -> bool:
        """Make the half messages that wait for `group` due. Return whether there are any."""
        waiting = self._waiting.pop(group, None)
        if waiting is None:
            return False
        self._overdue.extend((group, user, numbers) for user, numbers in waiting.items())
        return True

    def next(self, rows: Rows) -> int | None:
        """Return when the next half message is due; None if there is none. An early time is possible."""
        if self._overdue:
            return 0
        heads = [numbers[0] for numbers in self._delayed.values() if numbers]
        return min((rows.due(head) if rows.state(head) is HalfState.PENDING else 0 for head in heads), default=None)

    def pop(self, rows: Rows, now: int) -> int:
        """Remove and return a number that is due, or 0 if none is. Its half message may be decided already."""
        while self._overdue:
            if self._overdue[0][2]:
                return self._overdue[0][2].popleft()
            self._overdue.popleft()
        for delay, numbers in self._delayed.items():
            if not numbers:
                del self._delayed[delay]
                return self.pop(rows, now)
            if rows.state(numbers[0]) is not HalfState.PENDING or rows.due(numbers[0]) <= now:
                return numbers.popleft()
        return 0
