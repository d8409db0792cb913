"""The entries of access control: users, virtual hosts, and permissions, which are patterns of names."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from typing import TypeAlias

from escrowmq.core.conditions import BrokerError, Condition


@dataclass(frozen=True, slots=True)
class User:
    """An account that can log in. The core does not look into the password hash."""

    name: str
    password_hash: str
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Vhost:
    """A virtual host as an administrator sees it."""

    name: str


@dataclass(frozen=True, slots=True)
class Permission:
    """Regular expressions for the names in `vhost` that `user` may configure, write to and read from."""

    user: str
    vhost: str
    configure: str
    write: str
    read: str


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


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Return a regular expression to search for anywhere in a name. The empty pattern matches only the empty name.

    Raises INVALID_ARGUMENT. POSIX classes are refused: RabbitMQ supports them, but Python would misread them.
    """
    if "[:" in pattern:
        raise BrokerError(
            Condition.INVALID_ARGUMENT, f"invalid regular expression '{pattern}': POSIX classes are not supported"
        )
    try:
        with warnings.catch_warnings():
            # Python warns of patterns that a future version may read as nested sets.
            warnings.simplefilter("ignore", FutureWarning)
            return re.compile(pattern or "^$")
    except (re.error, OverflowError, RecursionError) as error:
        raise BrokerError(Condition.INVALID_ARGUMENT, f"invalid regular expression '{pattern}': {error}") from error
