"""The rights that a token grants, in the form of RabbitMQ's scopes.

A scope is `RIGHT:VHOST/NAME` or `RIGHT:VHOST/NAME/KEY`, where the right is configure, write or read, and the others are
wildcards; the key restricts the routing keys on topic exchanges, as a topic permission does. `tag:TAG` gives a tag.
Other scopes have no meaning here and are ignored, because a token may have some for other services.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from escrowmq.core.access.rules import DEFAULT_EXCHANGE, key_refused, name_refused, vhost_refused
from escrowmq.core.access.wildcard import Wildcard

if TYPE_CHECKING:
    from escrowmq.core.access.access import Kind, Right, TopicRight

_RIGHTS: Final = frozenset(("configure", "write", "read"))
_TAG: Final = "tag:"
_REMEMBERED: Final = 1000
"""The number of verdicts that one grant remembers."""


class ScopedRight(NamedTuple):
    """A right on the objects whose names match."""

    right: Right
    vhost: Wildcard
    name: Wildcard
    key: Wildcard


class Grant:
    """The rights of one user, which never change (`AccessRules`). It applies to its user only, whatever name is asked
    about. `expires_ms` is the time at which they end, in milliseconds since the epoch; 0: never.
    """

    __slots__ = ("_keys", "_permissions", "_verdicts", "expires_ms", "scopes", "tags", "user", "version")

    def __init__(self, user: str, scopes: Iterable[str], expires_ms: int = 0) -> None:
        """`scopes` have no prefix any more."""
        self.user = user
        self.scopes = tuple(dict.fromkeys(scopes))
        self.expires_ms = expires_ms
        self.version = 0
        self.tags = tuple(text.removeprefix(_TAG) for text in self.scopes if text.startswith(_TAG) and text != _TAG)
        self._permissions = [scope for scope in map(parsed, self.scopes) if scope is not None]
        self._verdicts: dict[tuple[str, str, Right], bool] = {}
        self._keys: dict[tuple[str, str, str, TopicRight], bool] = {}

    def check(self, user: str, vhost: str, kind: Kind, name: str, right: Right) -> None:
        """See `AccessRules.check`."""
        if not self.allowed(user, vhost, name, right):
            raise name_refused(self.user, vhost, kind, name)

    def allowed(self, user: str, vhost: str, name: str, right: Right) -> bool:
        """See `AccessRules.allowed`."""
        question = (vhost, name or DEFAULT_EXCHANGE, right)
        found = self._verdicts.get(question)
        if found is None:
            if len(self._verdicts) >= _REMEMBERED:
                self._verdicts.clear()
            found = self._verdicts[question] = bool(self._matching(*question))
        return found

    def restricted(self, user: str, vhost: str, exchange: str) -> bool:
        """See `AccessRules.restricted`."""
        found = self._matching(vhost, exchange or DEFAULT_EXCHANGE, "write")
        return bool(found) and not any(scope.key.is_any for scope in found)

    def restricted_anywhere(self, user: str, vhost: str) -> bool:
        """See `AccessRules.restricted_anywhere`."""
        return any(
            scope.right == "write" and not scope.key.is_any and scope.vhost.matches(vhost)
            for scope in self._permissions
        )

    def check_topic(self, user: str, vhost: str, exchange: str, routing_key: str, right: TopicRight) -> None:
        """See `AccessRules.check_topic`. An exchange that no scope names has no restricted keys, and no rights."""
        question = (vhost, exchange, routing_key, right)
        allowed = self._keys.get(question)
        if allowed is None:
            found = self._matching(vhost, exchange, right)
            allowed = not found or any(scope.key.matches(routing_key) for scope in found)
            if len(self._keys) >= _REMEMBERED:
                self._keys.clear()
            self._keys[question] = allowed
        if not allowed:
            raise key_refused(self.user, vhost, exchange, routing_key)

    def check_vhost(self, user: str, vhost: str) -> None:
        """See `AccessRules.check_vhost`. Whether the virtual host exists is not asked here."""
        if not self.enters(user, vhost):
            raise vhost_refused(self.user, vhost)

    def enters(self, user: str, vhost: str) -> bool:
        """See `AccessRules.enters`."""
        return any(scope.vhost.matches(vhost) for scope in self._permissions)

    def tags_of(self, user: str) -> tuple[str, ...]:
        """See `AccessRules.tags_of`."""
        return self.tags

    def _matching(self, vhost: str, name: str, right: Right) -> list[ScopedRight]:
        return [
            scope
            for scope in self._permissions
            if scope.right == right and scope.vhost.matches(vhost) and scope.name.matches(name)
        ]


def parsed(text: str) -> ScopedRight | None:
    """Return the right that a scope gives; None if it gives none."""
    right, _, pattern = text.partition(":")
    parts = pattern.split("/")
    if right not in _RIGHTS or len(parts) not in {2, 3}:
        return None
    try:
        vhost, name, key = (Wildcard(part) for part in (*parts, "*")[:3])
    except ValueError:
        return None
    return ScopedRight(cast("Right", right), vhost, name, key)
