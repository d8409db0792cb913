"""The memory that clients hold apart from messages that wait in queues: bounded for users and virtual hosts (FAIR-3).

It counts what transactions have published and settled, unacknowledged deliveries, messages of which more is to come,
and subscriptions. The sizes are estimates.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, Protocol

from escrowmq.core.conditions import BrokerError, Condition

STEP: Final = 16 * 1024
"""Bytes by which the share of a holding changes, so that small changes cost nothing."""

SUBSCRIPTION_BYTES: Final = 2048
"""The estimated memory of a subscription."""


class Paused(Protocol):
    """A receiver of deliveries that waits until its user and virtual host hold less."""

    def wake(self) -> None:
        """Go on."""
        ...


class Holdings:
    """The holdings of all clients. A limit of 0 is none. `any_full` tells whether any user or virtual host is full."""

    __slots__ = (
        "_full_users",
        "_full_vhosts",
        "_of_user",
        "_of_vhost",
        "_paused",
        "any_full",
        "user_limit",
        "vhost_limit",
    )

    def __init__(self) -> None:
        self.user_limit = self.vhost_limit = 0
        self._of_user: Counter[str] = Counter()
        self._of_vhost: Counter[str] = Counter()
        self._full_users: set[str] = set()
        self._full_vhosts: set[str] = set()
        self.any_full = False
        self._paused: dict[Paused, None] = {}

    def begin(self, user: str, vhost: str) -> Holding:
        """Return a holding of `user` in a virtual host. It is empty."""
        return Holding(self, user, vhost)

    def excess(self, user: str, vhost: str, more: int = 0) -> str:
        """Return which limit the user or the virtual host would exceed with `more` bytes; empty if none."""
        if self.user_limit and self._of_user[user] + more > self.user_limit:
            return f"user '{user}' holds {self._of_user[user]} bytes, at most {self.user_limit}"
        if self.vhost_limit and self._of_vhost[vhost] + more > self.vhost_limit:
            return f"the clients of vhost '{vhost}' hold {self._of_vhost[vhost]} bytes, at most {self.vhost_limit}"
        return ""

    def change(self, user: str, vhost: str, size: int) -> None:
        """Add `size` bytes, which may be negative. What was paused goes on as soon as less is held."""
        freed = _add(self._of_user, self._full_users, user, size, self.user_limit)
        freed |= _add(self._of_vhost, self._full_vhosts, vhost, size, self.vhost_limit)
        self.any_full = bool(self._full_users or self._full_vhosts)
        if freed and self._paused:
            paused, self._paused = self._paused, {}
            for one in paused:
                one.wake()

    def full(self, user: str, vhost: str) -> bool:
        """Return whether the user or the virtual host holds as much as it may."""
        return user in self._full_users or vhost in self._full_vhosts

    def pause(self, one: Paused) -> None:
        """Note that `one` waits until less is held."""
        self._paused[one] = None

    def forget(self, one: Paused) -> None:
        """Note that `one` does not wait any more."""
        self._paused.pop(one, None)

    def of_user(self, user: str) -> int:
        """Return the bytes that a user holds."""
        return self._of_user.get(user, 0)

    def of_vhost(self, vhost: str) -> int:
        """Return the bytes that the clients of a virtual host hold."""
        return self._of_vhost.get(vhost, 0)


class Holding:
    """What a channel or a transaction branch holds. `share` is the size that is counted for it, in steps."""

    __slots__ = ("_all", "_user", "_vhost", "share")

    def __init__(self, all_: Holdings, user: str, vhost: str) -> None:
        self._all = all_
        self._user = user
        self._vhost = vhost
        self.share = 0

    def grow(self, size: int, what: str) -> None:
        """Count `size` bytes. Raises LIMIT_EXCEEDED if it is more than before and exceeds a limit."""
        more = -(-size // STEP) * STEP - self.share
        if more <= 0:
            return
        excess = self._all.excess(self._user, self._vhost, more)
        if excess:
            raise BrokerError(
                Condition.LIMIT_EXCEEDED,
                f"no memory for {what}: {excess}, in open transactions, unacknowledged deliveries, "
                "incomplete messages and subscriptions",
            )
        self._set(self.share + more)

    def follow(self, size: int) -> None:
        """Count `size` bytes, whatever the limits."""
        self._set(-(-size // STEP) * STEP)

    def shrink(self, size: int) -> None:
        """Count `size` bytes if that is less than before. One step stays, since it will be needed again."""
        if size + 2 * STEP <= self.share:
            self.follow(max(size, 1))

    def _set(self, share: int) -> None:
        change, self.share = share - self.share, share
        if change:
            self._all.change(self._user, self._vhost, change)

    @property
    def full(self) -> bool:
        """Whether the user or the virtual host holds as much as it may."""
        return self._all.full(self._user, self._vhost)

    def close(self) -> None:
        """Count nothing any more."""
        self._set(0)


def _add(totals: Counter[str], full: set[str], name: str, size: int, limit: int) -> bool:
    """Change a total. Return whether it was full, and is not any more."""
    total = totals[name] = totals[name] + size
    if not total:
        del totals[name]
    if limit and total >= limit:
        full.add(name)
        return False
    if name not in full:
        return False
    full.remove(name)
    return True
