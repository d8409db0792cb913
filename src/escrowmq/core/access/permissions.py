"""The entries of access control: users, virtual hosts, and permissions as patterns of names."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from typing import TypeAlias

from escrowmq.core.conditions import BrokerError, Condition


@dataclass(frozen=True, slots=True)
class User:
    """Someone who can log in; the hash is opaque here."""

    name: str
    password_hash: str
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Vhost:
    """A virtual host as an administrator sees it."""

    name: str


@dataclass(frozen=True, slots=True)
class Permission:
    """The names in `vhost` that `user` may declare and delete, publish to, consume from: regular expressions."""

    user: str
    vhost: str
    configure: str
    write: str
    read: str


@dataclass(frozen=True, slots=True)
class TopicPermission:
    """The routing keys with which `user` may publish to, and bind to, the topic exchange: regular expressions.

    In them {username} and {vhost} stand for the user and the virtual host, taken literally.
    """

    user: str
    vhost: str
    exchange: str
    write: str
    read: str


Entry: TypeAlias = User | Vhost | Permission | TopicPermission


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """A regular expression that is searched for anywhere in a name; the empty one is found only in an empty name.

    Raises INVALID_ARGUMENT. POSIX classes, which RabbitMQ knows and Python would misread, are refused.
    """
    if "[:" in pattern:
        raise BrokerError(
            Condition.INVALID_ARGUMENT, f"invalid regular expression '{pattern}': POSIX classes are not supported"
        )
    try:
        with warnings.catch_warnings():
            # A set that looks as if it were nested means what it always meant.
            warnings.simplefilter("ignore", FutureWarning)
            return re.compile(pattern or "^$")
    except (re.error, OverflowError, RecursionError) as error:
        raise BrokerError(Condition.INVALID_ARGUMENT, f"invalid regular expression '{pattern}': {error}") from error
