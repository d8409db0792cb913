"""The password checks that wait for a thread, and the order in which they are made.

A check takes 20 ms or more, so a flood of wrong logins can delay right ones. Addresses therefore take turns: one that
guesses passwords does not delay others. Addresses with a recent wrong login wait behind all others, except for every
fourth check. A flood from many addresses therefore delays only clients at these addresses, and not without end.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final, NamedTuple

SUSPECT_SECONDS: Final = 60.0
"""The time for which a wrong login counts against its address."""
SUSPECTS: Final = 100_000
"""The number of addresses with wrong logins that are stored; the oldest are forgotten first."""
EVERY: Final = 4
"""One in this number of checks is made for an address with wrong logins, even while others wait."""
_FEW: Final = 1000


class Check(NamedTuple):
    """A waiting check. `until` is the time at which the client's connection is closed."""

    until: float
    work: Callable[[], None]
    give_up: Callable[[], None]
    wanted: Callable[[], bool]
    """Whether a client still waits for the result."""


class AddressLines:
    """Checks by address. The addresses take turns."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[Check]] = {}

    def __bool__(self) -> bool:
        return bool(self._lines)

    def put(self, address: str, check: Check) -> None:
        """Add a check at the end of its address's line."""
        self._lines.setdefault(address, deque()).append(check)

    def take(self) -> Check:
        """Remove and return the first check of the next address."""
        address = next(iter(self._lines))
        line = self._lines.pop(address)
        check = line.popleft()
        if line:
            self._lines[address] = line  # after the other addresses
        return check

    def sweep(self) -> list[Check]:
        """Remove and return the checks for which no client waits any more."""
        dropped: list[Check] = []
        for address, line in list(self._lines.items()):
            kept = deque(check for check in line if check.wanted())
            dropped += [check for check in line if not check.wanted()]
            if kept:
                self._lines[address] = kept
            else:
                del self._lines[address]
        return dropped


class Checks:
    """All checks that wait."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._first, self._behind = AddressLines(), AddressLines()
        self._wrong: OrderedDict[str, float] = OrderedDict()  # time of the last wrong login, by address
        self._made = 0
        self._count = 0
        self._sweep_at = _FEW

    def __len__(self) -> int:
        return self._count

    def put(self, address: str, check: Check) -> None:
        """Add a check. From time to time, drop the checks of disconnected clients."""
        (self._behind if self.suspects(address) else self._first).put(address, check)
        self._count += 1
        if self._count >= self._sweep_at:
            dropped = self._first.sweep() + self._behind.sweep()
            self._count -= len(dropped)
            self._sweep_at = max(_FEW, 2 * self._count)
            for each in dropped:
                each.give_up()

    def next(self) -> Check | None:
        """Remove and return the next check that a client waits for, or None. Give up the others before it."""
        while self._first or self._behind:
            turn = self._made % EVERY == EVERY - 1
            lines = self._behind if self._behind and (turn or not self._first) else self._first
            check = lines.take()
            self._count -= 1
            if check.wanted() and self._clock() <= check.until:
                self._made += 1
                return check
            check.give_up()
        return None

    def judged(self, address: str, *, right: bool) -> None:
        """Note whether a login from this address was right or wrong."""
        if right:
            self._wrong.pop(address, None)
            return
        self._wrong[address] = self._clock()
        self._wrong.move_to_end(address)
        if len(self._wrong) > SUSPECTS:
            self._wrong.popitem(last=False)

    def suspects(self, address: str) -> bool:
        """Return whether a recent login from this address was wrong."""
        wrong = self._wrong.get(address)
        return wrong is not None and self._clock() - wrong < SUSPECT_SECONDS
