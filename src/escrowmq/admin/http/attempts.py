"""Slow answers to those who guess passwords, and networks of clients.

The broker checks passwords of suspect addresses behind all others (`server.checks`). That protects others, but a quiet
broker would check dozens in a second. Here, each address gets a few wrong logins in a minute. The answer to every
further one takes `DELAY_SECONDS`, and `MOST_AT_ONCE` logins of that address are checked at the same time. Others are
refused without a check. Right logins are never delayed.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

from escrowmq.admin.http.broker import AskedBroker

LOGINS: Final = frozenset(("user.login", "token.login"))
FREE: Final = 5
"""Wrong logins of an address in `WINDOW_SECONDS` that are answered at once."""
WINDOW_SECONDS: Final = 60.0
DELAY_SECONDS: Final = 2.0
MOST_AT_ONCE: Final = 4
ADDRESSES: Final = 10_000
"""Addresses with wrong logins that are remembered; the oldest are forgotten first."""
TOO_MANY: Final[dict[str, Any]] = {"user": None, "tags": [], "reason": "too many wrong logins from this address"}
_PREFIX_BITS: Final = 64


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
        self._wrong: OrderedDict[str, deque[float]] = OrderedDict()  # the times of the last wrong logins, by address
        self._checking: Counter[str] = Counter()

    async def ask(self, command: str, **arguments: Any) -> Any:
        """See `AskedBroker.ask`."""
        if command not in LOGINS:
            return await self._broker.ask(command, **arguments)
        address = network_of(str(arguments.get("address", "")))
        suspect = self._is_suspect(address)
        if suspect and self._checking[address] >= MOST_AT_ONCE:
            return TOO_MANY
        self._checking[address] += 1
        try:
            found = await self._broker.ask(command, **arguments)
            if found["user"] is None:
                self._note(address)
                if suspect:
                    await self._sleep(DELAY_SECONDS)
            return found
        finally:
            self._checking[address] -= 1
            if not self._checking[address]:
                del self._checking[address]

    def _is_suspect(self, address: str) -> bool:
        times = self._wrong.get(address)
        return times is not None and len(times) >= FREE and self._clock() - times[0] < WINDOW_SECONDS

    def _note(self, address: str) -> None:
        self._wrong.setdefault(address, deque(maxlen=FREE)).append(self._clock())
        self._wrong.move_to_end(address)
        if len(self._wrong) > ADDRESSES:
            self._wrong.popitem(last=False)
