"""The door between a client and the broker: it refuses every operation for which the user lacks a right (SEC-1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from escrowmq.core.access.table import TABLE, Need, Object, Operation, Right
from escrowmq.core.budget import Budget
from escrowmq.core.conditions import BrokerError, Condition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from escrowmq.core.access.access import Kind
    from escrowmq.core.access.access import Right as NameRight
    from escrowmq.core.access.owned import Concerns, Owned
    from escrowmq.core.access.rules import AccessRules
    from escrowmq.core.topology.vhost import VirtualHost

ADMINISTRATOR: Final = "administrator"
MONITORING: Final = "monitoring"
REMEMBERED: Final = 100
"""Number of exchanges for which a door caches that the user may publish to them, and of keys on restricted ways."""
_OWNED: Final = frozenset((Object.BRANCH, Object.PROGRESS, Object.RESERVATION, Object.HALF))
_PATTERNS: Final[dict[Right, NameRight]] = {
    Right.CONFIGURE: "configure",
    Right.WRITE: "write",
    Right.READ: "read",
}


class Door:
    """The operations of one user in one virtual host.

    A user has the right to see and to decide an object if the user owns it, if the user's permissions cover all queues
    and exchanges that it concerns, or if the user has the tag `administrator`. With the tag `monitoring` the user sees
    it.
    """

    __slots__ = (
        *("_access", "_passed", "_publishes_to", "_requests", "_table", "_version", "_vhost", "_ways", "_ways_of"),
        "user",
    )

    def __init__(
        self,
        access: AccessRules,
        user: str,
        vhost: VirtualHost[Any],
        requests: Budget | None = None,
        table: Mapping[Operation, tuple[Need, ...]] = TABLE,
    ) -> None:
        """`access` has the user's rights. `requests` is charged with the walks over exchanges that a check needs.
        `table` has the operations that the broker serves.
        """
        self._access = access
        self._table = table
        self._vhost = vhost
        self._requests = requests if requests is not None else Budget()
        self._version = -1
        # Since the versions in `_ways_of`: by exchange, the topic exchanges with restricted keys to which messages may
        # get from there; and pairs of an exchange and a key that is allowed on its whole way.
        self._ways: dict[str, frozenset[str]] = {}
        self._passed: dict[tuple[str, str], None] = {}
        self._ways_of = (-1, -1)
        self._publishes_to: dict[str, None] = {}  # exchanges whose keys are not restricted, since `_version`
        self.user = user

    def renew(self, access: AccessRules) -> None:
        """Go on with other rights of the same user."""
        self._access = access
        self._version = -1
        self._ways_of = (-1, -1)

    def check(self, operation: Operation, **objects: str | Owned | None) -> None:
        """Raises ACCESS_REFUSED if the table's needs for `operation` are not met.

        `objects` has the name, or the object itself, for each need. None is an object that does not exist yet.
        """
        needs = self._table.get(operation)
        if needs is None:
            raise BrokerError(Condition.ACCESS_REFUSED, _unserved(operation))
        for need in needs:
            self._check(need, objects)

    def check_publish(self, exchange: str, keys: Sequence[str]) -> None:
        """Check PUBLISH for each key, also on the exchanges to which bindings and alternate exchanges lead (SEC-3).

        If no topic permission restricts the user, the verdict holds for every key and is cached, since publishers may
        use a different key for each message.
        """
        access = self._access
        if self._version != access.version:
            self._version = access.version
            self._publishes_to.clear()
        if exchange in self._publishes_to:
            return
        for key in keys:
            self.check(Operation.PUBLISH, exchange=exchange, key=key)
        if access.restricted_anywhere(self.user, self._vhost.name):
            self._check_way(exchange, keys)
        elif len(self._publishes_to) < REMEMBERED:
            self._publishes_to[exchange] = None

    def allows_any_key(self, exchange: str, key: str) -> bool:
        """Check PUBLISH for a message with this key, and return whether the verdict holds for every key. Raises as
        `check_publish`.
        """
        self.check_publish(exchange, (key,))
        return exchange in self._publishes_to

    def check_publish_each(self, exchange: str, keys: Sequence[str]) -> None:
        """Check PUBLISH for messages that have one of these keys each. Raises as `check_publish`."""
        for key in keys:
            self.check_publish(exchange, (key,))
            if exchange in self._publishes_to:
                return

    def _check_way(self, exchange: str, keys: Sequence[str]) -> None:
        """Check the keys on the way of a message. The way of each key is walked only if some way from this exchange
        leads to a topic exchange on which the user's keys are restricted.
        """
        versions = self._access.version, self._vhost.topology
        if self._ways_of != versions:
            self._ways_of = versions
            self._ways.clear()
            self._passed.clear()
        if exchange not in self._vhost.exchanges:
            return
        restricted = self._ways.get(exchange)
        if restricted is None:
            restricted = self._restricted_from(exchange)
        if not restricted or (len(keys) == 1 and (exchange, keys[0]) in self._passed):
            return
        reached = self._vhost.reached(exchange, keys)
        self._requests.left -= self._vhost.take_cost()
        for passed in reached:
            if passed.name in restricted:
                for key in keys:
                    self._check_key(passed.name, key, "write")
        if len(keys) == 1:
            if len(self._passed) >= REMEMBERED:
                self._passed.clear()
            self._passed[exchange, keys[0]] = None

    def _restricted_from(self, exchange: str) -> frozenset[str]:
        """Return the topic exchanges with restricted keys to which messages may get from `exchange`, and cache them."""
        reachable = self._vhost.reachable(exchange)
        self._requests.left -= self._vhost.take_cost()
        restricted = frozenset(
            each.name
            for each in reachable
            if each.kind == "topic" and self._access.restricted(self.user, self._vhost.name, each.name)
        )
        if len(self._ways) >= REMEMBERED:
            self._ways.clear()
        self._ways[exchange] = restricted
        return restricted

    def allows(self, operation: Operation, **objects: str | Owned | None) -> bool:
        """Return whether `check` would pass."""
        try:
            self.check(operation, **objects)
        except BrokerError:
            return False
        return True

    def covers(self, owned: Owned) -> bool:
        """Return whether the user may see the contents of `owned`: as its owner or by permissions, not by a tag."""
        return owned.user == self.user or self._permitted(owned.concerns)

    def _check(self, need: Need, objects: dict[str, Any]) -> None:
        given = objects[need.object]
        if need.object in _OWNED:
            if given is not None and not self._has(given, need.right):
                raise BrokerError(
                    Condition.ACCESS_REFUSED,
                    f"access to {given.title} in vhost '{self._vhost.name}' refused for user '{self.user}'",
                )
        elif need.object is Object.KEY:
            self._check_key(objects[Object.EXCHANGE], given, _PATTERNS[need.right])
        elif need.right is Right.WRITE_EVERY_KEY:
            self._check_every_key(given)
        elif need.object is Object.DEAD_LETTER_KEY:
            exchange = objects[Object.DEAD_LETTER]
            if given is None:
                self._check_every_key(exchange)
            elif self._may_be_topic(exchange):
                self._access.check_topic(self.user, self._vhost.name, exchange, given, "write")
        else:
            kind: Kind = "queue" if need.object is Object.QUEUE else "exchange"
            right = _PATTERNS.get(need.right) or self._any_right(given)
            self._access.check(self.user, self._vhost.name, kind, given, right)

    def _any_right(self, name: str) -> NameRight:
        """A right that the user has on `name`, or one of those that the user lacks."""
        allowed, vhost = self._access.allowed, self._vhost.name
        return next((right for right in _PATTERNS.values() if allowed(self.user, vhost, name, right)), "read")

    def _check_key(self, exchange: str, key: str, right: NameRight) -> None:
        found = self._vhost.exchanges.get(exchange)
        if found is not None and found.kind == "topic" and right != "configure":
            self._access.check_topic(self.user, self._vhost.name, exchange, key, right)

    def _check_every_key(self, exchange: str) -> None:
        """Raises ACCESS_REFUSED if topic permissions restrict the keys for `exchange`."""
        if self._may_be_topic(exchange) and self._access.restricted(self.user, self._vhost.name, exchange):
            raise BrokerError(
                Condition.ACCESS_REFUSED,
                f"access with every routing key to exchange '{exchange}' in vhost '{self._vhost.name}' refused for "
                f"user '{self.user}', whose topic permission restricts the keys",
            )

    def _may_be_topic(self, exchange: str) -> bool:
        """Whether this is a topic exchange, or does not exist yet and may become one."""
        found = self._vhost.exchanges.get(exchange)
        return found is None or found.kind == "topic"

    def _has(self, owned: Owned, right: Right) -> bool:
        if owned.user == self.user:
            return True
        tags = self._access.tags_of(self.user)
        if ADMINISTRATOR in tags or (right is Right.SEE and MONITORING in tags):
            return True
        return self._permitted(owned.concerns)

    def _permitted(self, concerns: Concerns | None) -> bool:
        """Return whether permissions cover `concerns`. Restricted routing keys on one of the exchanges do not."""
        if concerns is None or not concerns.complete or not concerns.names:
            return False
        access, vhost = self._access, self._vhost.name
        return all(
            access.allowed(self.user, vhost, name, right)
            and not (kind == "exchange" and access.restricted(self.user, vhost, name))
            for kind, name, right in concerns.names
        )


def _unserved(operation: Operation) -> str:
    if operation in TABLE:
        return f"a standby only serves reads of streams; ask the leader to {operation}"
    return f"the broker has no rule for the operation '{operation}'"
