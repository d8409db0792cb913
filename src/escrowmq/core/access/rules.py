"""What a door asks before it opens: the rights of its user, from the list of users or from a token."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final, Protocol

from escrowmq.core.conditions import BrokerError, Condition

if TYPE_CHECKING:
    from escrowmq.core.access.access import Kind, Right, TopicRight

DEFAULT_EXCHANGE: Final = "amq.default"
"""The name of the default exchange, which is empty, in patterns and error texts."""


class AccessRules(Protocol):
    """The rights of users. `Access` has those of the list of users, `Grant` those of the one user of a token."""

    @property
    def version(self) -> int:
        """Increases with every change, so a caller can cache a verdict beside it."""
        ...

    def check(self, user: str, vhost: str, kind: Kind, name: str, right: Right) -> None:
        """Raises ACCESS_REFUSED unless `user` has the right on an object in `vhost`."""
        ...

    def allowed(self, user: str, vhost: str, name: str, right: Right) -> bool:
        """Return whether `check` would pass."""
        ...

    def restricted(self, user: str, vhost: str, exchange: str) -> bool:
        """Return whether the routing keys are restricted with which `user` may publish to this exchange."""
        ...

    def restricted_anywhere(self, user: str, vhost: str) -> bool:
        """Return whether `restricted` is true for some exchange of the virtual host."""
        ...

    def check_topic(self, user: str, vhost: str, exchange: str, routing_key: str, right: TopicRight) -> None:
        """Raises ACCESS_REFUSED if keys are restricted on this exchange, and this one is not allowed."""
        ...

    def enters(self, user: str, vhost: str) -> bool:
        """Return whether the user has some right in the virtual host."""
        ...

    def check_vhost(self, user: str, vhost: str) -> None:
        """Raises NOT_ALLOWED unless the user may enter the virtual host."""
        ...

    def tags_of(self, user: str) -> Collection[str]:
        """Return the user's tags."""
        ...


def name_refused(user: str, vhost: str, kind: Kind, name: str) -> BrokerError:
    """Return the refusal of a right on an object."""
    return BrokerError(
        Condition.ACCESS_REFUSED,
        f"access to {kind} '{name or DEFAULT_EXCHANGE}' in vhost '{vhost}' refused for user '{user}'",
    )


def key_refused(user: str, vhost: str, exchange: str, routing_key: str) -> BrokerError:
    """Return the refusal of a routing key."""
    return BrokerError(
        Condition.ACCESS_REFUSED,
        f"access to topic '{routing_key}' in exchange '{exchange}' in vhost '{vhost}' refused for user '{user}'",
    )


def vhost_refused(user: str, vhost: str) -> BrokerError:
    """Return the refusal of a virtual host."""
    return BrokerError(Condition.NOT_ALLOWED, f"access to vhost '{vhost}' refused for user '{user}'")
