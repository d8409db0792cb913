"""The entries of access control: users, virtual hosts, and permissions as patterns of names."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, TypeAlias

from escrowmq.core.conditions import BrokerError, Condition

VHOST_LIMITS: Final = frozenset({"max-connections", "max-queues"})


@dataclass(frozen=True, slots=True)
class User:
    """Someone who can log in; the hash is opaque here."""

    name: str
    password_hash: str
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Vhost:
    """A virtual host as an administrator sees it. `limits` by name; what is not there is not limited."""

    name: str
    limits: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))


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


def checked_limits(limits: Mapping[str, int]) -> Mapping[str, int]:
    """A copy of `limits` that stays as it is. Raises INVALID_ARGUMENT for an unknown name or a value below 0."""
    for name, value in limits.items():
        if name not in VHOST_LIMITS:
            raise BrokerError(
                Condition.INVALID_ARGUMENT, f"unknown limit '{name}'; there are {', '.join(sorted(VHOST_LIMITS))}"
            )
        if type(value) is not int or value < 0:
            raise BrokerError(Condition.INVALID_ARGUMENT, f"limit '{name}' must be 0 or more, got {value!r}")
    return MappingProxyType(dict(limits))
