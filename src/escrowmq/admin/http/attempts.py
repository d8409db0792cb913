"""Slow answers to those who guess passwords, and networks of clients.

The broker checks passwords of suspect addresses behind all others (`server.checks`). That protects others, but a quiet
broker would check dozens in a second. Here, wrong logins of the last minute are counted in three ways:

- those of a user from an address,
- those from an address, whoever the user,
- those of a user, wherever they come from.

Each count allows a few. The answer to every further wrong login takes `DELAY_SECONDS`, and only `MOST_AT_ONCE` logins
that belong to the count are checked at the same time. Others are refused without a check. Right logins are not delayed.

Only the first count holds for a user at an address from which that user has logged in before. So nobody can lock a user
out from elsewhere, neither by guessing its password from a thousand addresses, nor by guessing those of other users
behind the same proxy. A token names no user that could be believed before it is checked, so tokens have no third count;
one that was right before is always checked. The third count does not hold for clients on this machine, so that an
operator has a way in.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, TypeVar

from escrowmq.admin.http.broker import AskedBroker

LOGINS: Final = frozenset(("user.login", "token.login"))
FREE: Final = 5
"""Wrong logins of a user from an address in `WINDOW_SECONDS` that are answered at once."""
FREE_TOGETHER: Final = 20
"""Those of all users from an address, and of a user from all addresses."""
WINDOW_SECONDS: Final = 60.0
DELAY_SECONDS: Final = 2.0
MOST_AT_ONCE: Final = 4
REMEMBERED: Final = 20_000
"""Counts of wrong logins, and right logins, that are remembered; the oldest are forgotten first."""
TOO_MANY: Final[dict[str, Any]] = {"user": None, "tags": [], "reason": "too many wrong logins"}
_PREFIX_BITS: Final = 64
_LONGEST_USER: Final = 256
"""Characters of a name that are remembered, one more than those of any user."""
T = TypeVar("T")


def network_of(host: str) -> str:
    """Return the address for which clients are counted: an IPv4 address, or the 64-bit prefix of an IPv6 address."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(int(address) >> _PREFIX_BITS)


def is_this_machine(address: str) -> bool:
    """Return whether clients of an address (see `network_of`) run on this machine."""
    return address.startswith("127.") or address in {"", network_of("::1")}


class CountedLogin(NamedTuple):
    """A login that is to be checked. `user` is empty for a token, and `token` for a password."""

    user: str
    address: str
    token: str

    @property
    def known_as(self) -> tuple[str, str]:
        """The identity by which a right login is remembered."""
        if self.token:
            return "", hashlib.blake2b(self.token.encode("utf-8", "surrogatepass"), digest_size=32).hexdigest()
        return self.user, self.address

    def counts(self, *, known: bool) -> dict[tuple[str, str], int]:
        """Return the counts to which it belongs, with the wrong logins that each allows."""
        found = {(self.user, self.address): FREE}
        if not known:
            found["", f"from {self.address}"] = FREE_TOGETHER
            if self.user and not is_this_machine(self.address):
                found[self.user, ""] = FREE_TOGETHER
        return found


class GuardedBroker:
    """Asks a broker, and delays wrong logins (`AskedBroker`)."""

    def __init__(
        self,
        broker: AskedBroker,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._broker = broker
        self._clock = clock
        self._sleep = sleep
        self._wrong: OrderedDict[tuple[str, str], deque[float]] = OrderedDict()  # the times of the last, by count
        self._right: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._checking: Counter[tuple[str, str]] = Counter()

    async def ask(self, command: str, **arguments: Any) -> Any:
        """See `AskedBroker.ask`."""
        if command not in LOGINS:
            return await self._broker.ask(command, **arguments)
        user, address, token = (str(arguments.get(name, "")) for name in ("user", "address", "token"))
        login = CountedLogin(user[:_LONGEST_USER], network_of(address), token)
        known = login.known_as in self._right
        counts = {} if known and token else login.counts(known=known)
        suspect = [count for count, free in counts.items() if self._is_full(count, free)]
        if any(self._checking[count] >= MOST_AT_ONCE for count in suspect):
            return TOO_MANY
        self._checking.update(counts.keys())
        try:
            found = await self._broker.ask(command, **arguments)
            if found["user"] is not None:
                self._remember(self._right, login.known_as, None)
                return found
            for count, free in counts.items():
                times = self._wrong.get(count) or deque(maxlen=free)
                times.append(self._clock())
                self._remember(self._wrong, count, times)
            if suspect:
                await self._sleep(DELAY_SECONDS)
            return found
        finally:
            self._checking.subtract(counts.keys())
            for count in counts:
                if not self._checking[count]:
                    del self._checking[count]

    def _is_full(self, count: tuple[str, str], free: int) -> bool:
        times = self._wrong.get(count)
        return times is not None and len(times) >= free and self._clock() - times[0] < WINDOW_SECONDS

    def _remember(self, kept: OrderedDict[tuple[str, str], T], key: tuple[str, str], value: T) -> None:
        kept[key] = value
        kept.move_to_end(key)
        if len(kept) > REMEMBERED:
            kept.popitem(last=False)
