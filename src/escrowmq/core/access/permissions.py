"""The entries of access control: users, virtual hosts, and permissions, which are patterns of names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

import re2

from escrowmq.core.conditions import BrokerError, Condition


class PasswordHashes(NamedTuple):
    """The forms in which a password is stored. The core does not look into them."""

    password_hash: str = ""
    """For mechanisms that reveal the password to the broker; empty if the user has no password."""
    scram_hashes: tuple[str, ...] = ()
    """For the mechanisms of SCRAM. Journals of older versions have none."""


@dataclass(frozen=True, slots=True)
class User:
    """An account that can log in. The core does not look into the hashes of its password.

    The limits are the numbers of open connections and channels that it may have together; None means no limit.
    """

    name: str
    password_hash: str
    tags: tuple[str, ...] = ()
    max_connections: int | None = None
    max_channels: int | None = None
    scram_hashes: tuple[str, ...] = field(default=(), repr=False)
    access_keys: tuple[str, ...] = ()
    """Names by which clients that sign their requests refer to the user. Their secrets are not stored."""


@dataclass(frozen=True, slots=True)
class Vhost:
    """A virtual host as an administrator sees it.

    The limits are the numbers of connections to it, and of queues in it; None means no limit.
    """

    name: str
    max_connections: int | None = None
    max_queues: int | None = None


@dataclass(frozen=True, slots=True)
class Permission:
    """Regular expressions for the names in `vhost` that `user` may configure, write to and read from."""

    user: str
    vhost: str
    configure: str
    write: str
    read: str


@dataclass(frozen=True, slots=True)
class DefaultLimits:
    """The limits of users and virtual hosts that have none of their own; None means no limit."""

    connections_of_user: int | None = None
    channels_of_user: int | None = None
    connections_of_vhost: int | None = None
    queues_of_vhost: int | None = None


@dataclass(frozen=True, slots=True)
class TopicPermission:
    """Regular expressions for the routing keys with which `user` may publish to, and bind to, a topic exchange.

    In them {username} and {vhost} stand for the user's name and the virtual host's name, taken literally.
    """

    user: str
    vhost: str
    exchange: str
    write: str
    read: str


Entry: TypeAlias = User | Vhost | Permission | TopicPermission


class Pattern:
    """A compiled pattern. It is searched for anywhere in a name; the empty one is found only in an empty name.

    RE2 needs time linear in the length of the name, for any pattern (SEC-1).
    """

    __slots__ = ("_search",)

    def __init__(self, text: str) -> None:
        """Raises INVALID_ARGUMENT for a pattern that RE2 does not support, such as one with look-around."""
        try:
            self._search = re2.compile((text or "^$").encode("utf-8", "surrogatepass"), _OPTIONS).search
        except re2.error as error:
            why = error.args[0]
            why = why.decode("utf-8", "replace") if isinstance(why, bytes) else why
            raise BrokerError(
                Condition.INVALID_ARGUMENT,
                f"invalid regular expression '{text}': {why}; the syntax is that of RE2, which has no look-around and "
                "no back-references",
            ) from None

    def found_in(self, name: str) -> bool:
        """Whether the pattern is found in `name`."""
        return self._search(name.encode("utf-8", "surrogatepass")) is not None


def unsupported(entry: Entry) -> BrokerError | None:
    """The reason why one of the entry's patterns is not supported; None if all are. A journal may hold such patterns
    from a version that had another engine.
    """
    patterns: tuple[str, ...] = ()
    if isinstance(entry, Permission):
        patterns = (entry.configure, entry.write, entry.read)
    elif isinstance(entry, TopicPermission):
        patterns = (entry.write, entry.read)
    for pattern in patterns:
        try:
            Pattern(pattern)
        except BrokerError as error:
            return error
    return None


def literal(text: str) -> str:
    """The pattern that is found where `text` is."""
    return str(re2.escape(text))


def _options() -> re2.Options:
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = _MOST_MEMORY
    return options


_MOST_MEMORY: Final = 1 << 20
"""Bytes that one pattern may use. A pattern that needs more is refused; a search that would is slower, but linear."""
_OPTIONS: Final = _options()
