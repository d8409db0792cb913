"""Access control: users, virtual hosts, permissions, and the checks against them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, Literal, TypeAlias

from escrowmq.core.access.permissions import (
    DefaultLimits,
    Entry,
    Pattern,
    Permission,
    TopicPermission,
    User,
    Vhost,
    literal,
)
from escrowmq.core.access.rules import DEFAULT_EXCHANGE, key_refused, name_refused, vhost_refused
from escrowmq.core.conditions import BrokerError, Condition

Kind: TypeAlias = Literal["queue", "exchange"]
Right: TypeAlias = Literal["configure", "write", "read"]
TopicRight: TypeAlias = Literal["write", "read"]

VERDICT_LIMIT: Final = 20_000
"""Number of verdicts that are remembered. Names can have 255 bytes."""
EVERY_KEY: Final = frozenset((".*", "^.*", "^.*$", ".*$"))
"""Patterns of topic permissions that are known to allow every routing key."""
MOST_ACCESS_KEYS: Final = 100
"""The number of access keys of one user."""
PATTERN_LIMIT: Final = 1000
"""Number of compiled patterns that are remembered."""


class Access:
    """The rules of access control, and the checks against them. `defaults` are the limits of users and virtual hosts
    that have none of their own.

    Methods that change the rules return the changed entries for the journal. `put` and `drop` apply such entries again,
    without checks. `version` increases with every change, so a caller can cache a verdict beside it.
    """

    __slots__ = (
        "_keys",
        "_patterns",
        "_restricted",
        "_topic_verdicts",
        "_verdicts",
        "defaults",
        "permissions",
        "topic_permissions",
        "users",
        "version",
        "vhosts",
    )

    def __init__(self) -> None:
        self.users: dict[str, User] = {}
        self.vhosts: dict[str, Vhost] = {}
        self.permissions: dict[tuple[str, str], Permission] = {}
        self.topic_permissions: dict[tuple[str, str, str], TopicPermission] = {}
        self.version = 0
        self._verdicts: dict[tuple[str, str, str, Right], bool] = {}
        self._topic_verdicts: dict[tuple[str, str, str, str, TopicRight], bool] = {}
        self._restricted: dict[tuple[str, str], bool] = {}
        self._patterns: dict[str, Pattern] = {}
        self._keys: dict[str, str] | None = {}  # None: to be collected again
        self.defaults = DefaultLimits()

    # -- questions

    def check(self, user: str, vhost: str, kind: Kind, name: str, right: Right) -> None:
        """Raises ACCESS_REFUSED unless the permissions of `user` in `vhost` allow it."""
        if not self.allowed(user, vhost, name, right):
            raise name_refused(user, vhost, kind, name)

    def allowed(self, user: str, vhost: str, name: str, right: Right) -> bool:
        """Return whether the permissions of `user` in `vhost` allow it. An empty name is the default exchange."""
        name = name or DEFAULT_EXCHANGE
        question = (user, vhost, name, right)
        allowed = self._verdicts.get(question)
        if allowed is None:
            permission = self.permissions.get((user, vhost))
            allowed = permission is not None and self._found(getattr(permission, right), name)
            if len(self._verdicts) >= VERDICT_LIMIT:
                self._verdicts.clear()
            self._verdicts[question] = allowed
        return allowed

    def restricted(self, user: str, vhost: str, exchange: str) -> bool:
        """Return whether topic permissions restrict the routing keys with which `user` may publish to this exchange."""
        permission = self.topic_permissions.get((user, vhost, exchange))
        return permission is not None and permission.write not in EVERY_KEY

    def restricted_anywhere(self, user: str, vhost: str) -> bool:
        """Return whether `restricted` is true for some exchange of the virtual host."""
        found = self._restricted.get((user, vhost))
        if found is None:
            if len(self._restricted) >= VERDICT_LIMIT:
                self._restricted.clear()
            found = any(
                permission.write not in EVERY_KEY
                for permission in self.topic_permissions.values()
                if (permission.user, permission.vhost) == (user, vhost)
            )
            self._restricted[user, vhost] = found
        return found

    def check_topic(self, user: str, vhost: str, exchange: str, routing_key: str, right: TopicRight) -> None:
        """Raises ACCESS_REFUSED if `user` has topic permissions for this exchange and they do not allow the key."""
        permission = self.topic_permissions.get((user, vhost, exchange))
        if permission is None:
            return
        question = (user, vhost, exchange, routing_key, right)
        allowed = self._topic_verdicts.get(question)
        if allowed is None:
            pattern = getattr(permission, right)
            pattern = pattern.replace("{username}", literal(user)).replace("{vhost}", literal(vhost))
            allowed = self._found(pattern, routing_key)
            if len(self._topic_verdicts) >= VERDICT_LIMIT:
                self._topic_verdicts.clear()
            self._topic_verdicts[question] = allowed
        if not allowed:
            raise key_refused(user, vhost, exchange, routing_key)

    def check_vhost(self, user: str, vhost: str) -> None:
        """Raises NOT_ALLOWED unless the virtual host exists and the user has some permission in it."""
        if vhost not in self.vhosts:
            raise BrokerError(Condition.NOT_ALLOWED, f"vhost {vhost} not found")
        if not self.enters(user, vhost):
            raise vhost_refused(user, vhost)

    def enters(self, user: str, vhost: str) -> bool:
        """Return whether the user has some permission in the virtual host."""
        return (user, vhost) in self.permissions

    def tags_of(self, user: str) -> tuple[str, ...]:
        """Return the tags of a user; one that is not in the list has none."""
        found = self.users.get(user)
        return found.tags if found is not None else ()

    def _found(self, pattern: str, name: str) -> bool:
        compiled = self._patterns.get(pattern)
        if compiled is None:
            if len(self._patterns) >= PATTERN_LIMIT:
                self._patterns.clear()
            try:
                compiled = Pattern(pattern)
            except BrokerError:  # only in a journal of an older version; it allows nothing
                return False
            self._patterns[pattern] = compiled
        return compiled.found_in(name)

    # -- users

    def user(self, name: str) -> User:
        """Return the user `name`. Raises NOT_FOUND."""
        user = self.users.get(name)
        if user is None:
            raise BrokerError(Condition.NOT_FOUND, f"no such user '{name}'")
        return user

    def add_user(
        self, name: str, password_hash: str, tags: tuple[str, ...] = (), scram_hashes: tuple[str, ...] = ()
    ) -> User:
        """Add a user. Raises PRECONDITION_FAILED if the name is taken, INVALID_ARGUMENT if it is empty."""
        if not name:
            raise BrokerError(Condition.INVALID_ARGUMENT, "a user needs a name")
        if name in self.users:
            raise BrokerError(Condition.PRECONDITION_FAILED, f"user '{name}' already exists")
        return self._put_user(User(name, password_hash, tags, scram_hashes=scram_hashes))

    def set_password(self, name: str, password_hash: str, scram_hashes: tuple[str, ...] = ()) -> User:
        """Replace all hashes of the user's password. Raises NOT_FOUND."""
        return self._put_user(replace(self.user(name), password_hash=password_hash, scram_hashes=scram_hashes))

    def set_tags(self, name: str, tags: tuple[str, ...]) -> User:
        """Replace the user's tags. Raises NOT_FOUND."""
        return self._put_user(replace(self.user(name), tags=tags))

    def add_access_key(self, name: str, key: str) -> User:
        """Let clients refer to the user by an access key. Raises NOT_FOUND, PRECONDITION_FAILED if the key is taken,
        and LIMIT_EXCEEDED if the user has too many.
        """
        user = self.user(name)
        if self.user_of_key(key) is not None:
            raise BrokerError(Condition.PRECONDITION_FAILED, f"the access key '{key}' exists already")
        if len(user.access_keys) >= MOST_ACCESS_KEYS:
            raise BrokerError(
                Condition.LIMIT_EXCEEDED, f"user '{name}' has {MOST_ACCESS_KEYS} access keys, the limit; delete one"
            )
        return self._put_user(replace(user, access_keys=(*user.access_keys, key)))

    def remove_access_key(self, name: str, key: str) -> User:
        """Remove an access key of the user. Raises NOT_FOUND for the user or the key."""
        user = self.user(name)
        if key not in user.access_keys:
            raise BrokerError(Condition.NOT_FOUND, f"user '{name}' has no access key '{key}'")
        return self._put_user(replace(user, access_keys=tuple(each for each in user.access_keys if each != key)))

    def user_of_key(self, key: str) -> str | None:
        """Return the name of the user with an access key, or None."""
        if self._keys is None:
            self._keys = {each: user.name for user in self.users.values() for each in user.access_keys}
        return self._keys.get(key)

    def set_user_limits(self, name: str, max_connections: int | None, max_channels: int | None) -> User:
        """Set all limits of a user; None means no limit. Raises NOT_FOUND."""
        return self._put_user(replace(self.user(name), max_connections=max_connections, max_channels=max_channels))

    def remove_user(self, name: str) -> tuple[Entry, ...]:
        """Remove the user and its permissions. Raises NOT_FOUND."""
        return self._remove(self.user(name))

    # -- virtual hosts

    def vhost(self, name: str) -> Vhost:
        """Return the virtual host `name`. Raises NOT_FOUND."""
        vhost = self.vhosts.get(name)
        if vhost is None:
            raise BrokerError(Condition.NOT_FOUND, f"no such vhost '{name}'")
        return vhost

    def add_vhost(self, name: str) -> Vhost:
        """Add a virtual host. Raises PRECONDITION_FAILED if the name is taken, INVALID_ARGUMENT if it is empty."""
        if not name:
            raise BrokerError(Condition.INVALID_ARGUMENT, "a vhost needs a name")
        if name in self.vhosts:
            raise BrokerError(Condition.PRECONDITION_FAILED, f"vhost '{name}' already exists")
        return self._put_vhost(Vhost(name))

    def set_vhost_limits(self, name: str, max_connections: int | None, max_queues: int | None) -> Vhost:
        """Set all limits of a virtual host; None means no limit. Raises NOT_FOUND."""
        return self._put_vhost(replace(self.vhost(name), max_connections=max_connections, max_queues=max_queues))

    def check_channels(self, name: str, count: int) -> None:
        """Raises NOT_ALLOWED if a user who has `count` open channels may not open another one."""
        user = self.users.get(name)
        most = self.defaults.channels_of_user if user is None or user.max_channels is None else user.max_channels
        if most is not None and count >= most:
            raise BrokerError(
                Condition.NOT_ALLOWED,
                f"number of channels opened for user '{name}' has reached the maximum allowed limit of ({most})",
            )

    def check_queues(self, name: str, queue: str, count: int) -> None:
        """Raises PRECONDITION_FAILED if `queue` may not be declared in a virtual host that has `count` queues."""
        vhost = self.vhosts.get(name)
        most = self.defaults.queues_of_vhost if vhost is None or vhost.max_queues is None else vhost.max_queues
        if most is not None and count >= most:
            raise BrokerError(
                Condition.PRECONDITION_FAILED,
                f"cannot declare queue '{queue}': queue limit in vhost '{name}' ({most}) is reached",
            )

    def check_connections(self, name: str, of_user: int, vhost_name: str, of_vhost: int) -> None:
        """Raises NOT_ALLOWED if a user with `of_user` connections may not enter a virtual host with `of_vhost`."""
        user, vhost, defaults = self.users.get(name), self.vhosts.get(vhost_name), self.defaults
        most = defaults.connections_of_user if user is None or user.max_connections is None else user.max_connections
        if most is not None and of_user >= most:
            raise BrokerError(
                Condition.NOT_ALLOWED,
                f"connection refused for user '{name}': user connection limit ({most}) is reached",
            )
        most = (
            defaults.connections_of_vhost if vhost is None or vhost.max_connections is None else vhost.max_connections
        )
        if most is not None and of_vhost >= most:
            raise BrokerError(
                Condition.NOT_ALLOWED,
                f"access to vhost '{vhost_name}' refused for user '{name}': connection limit ({most}) is reached",
            )

    def remove_vhost(self, name: str) -> tuple[Entry, ...]:
        """Remove the virtual host and all permissions in it. Raises NOT_FOUND."""
        return self._remove(self.vhost(name))

    # -- permissions

    def set_permission(self, user: str, vhost: str, configure: str, write: str, read: str) -> Permission:
        """Set the user's permissions in `vhost`; an empty pattern allows nothing.

        Raises NOT_FOUND, and INVALID_ARGUMENT for an invalid regular expression.
        """
        self.user(user)
        self.vhost(vhost)
        for pattern in (configure, write, read):
            Pattern(pattern)
        permission = Permission(user, vhost, configure, write, read)
        self.put(permission)
        return permission

    def clear_permission(self, user: str, vhost: str) -> tuple[Entry, ...]:
        """Remove the user's permissions in `vhost`, if any. Raises NOT_FOUND for the user or the virtual host."""
        self.user(user)
        self.vhost(vhost)
        permission = self.permissions.get((user, vhost))
        return self._remove(permission) if permission is not None else ()

    def set_topic_permission(self, user: str, vhost: str, exchange: str, write: str, read: str) -> TopicPermission:
        """Set the user's topic permissions for `exchange`.

        Raises NOT_FOUND, and INVALID_ARGUMENT for an invalid regular expression.
        """
        self.user(user)
        self.vhost(vhost)
        for pattern in (write, read):
            Pattern(pattern)
        permission = TopicPermission(user, vhost, exchange, write, read)
        self.put(permission)
        return permission

    def clear_topic_permission(self, user: str, vhost: str, exchange: str | None = None) -> tuple[Entry, ...]:
        """Remove the user's topic permissions for one exchange, or for all exchanges.

        Raises NOT_FOUND for the user or the virtual host.
        """
        self.user(user)
        self.vhost(vhost)
        removed = [
            permission
            for permission in self.topic_permissions.values()
            if (permission.user, permission.vhost) == (user, vhost) and exchange in {None, permission.exchange}
        ]
        for permission in removed:
            self.drop(permission)
        return tuple(removed)

    # -- journal and snapshot

    def entries(self) -> Iterator[Entry]:
        """Return all entries in an order in which `put` accepts them."""
        yield from self.users.values()
        yield from self.vhosts.values()
        yield from self.permissions.values()
        yield from self.topic_permissions.values()

    def put(self, entry: Entry) -> None:
        """Add or replace an entry without any check."""
        match entry:
            case User():
                self.users[entry.name] = entry
            case Vhost():
                self.vhosts[entry.name] = entry
            case Permission():
                self.permissions[entry.user, entry.vhost] = entry
            case TopicPermission():
                self.topic_permissions[entry.user, entry.vhost, entry.exchange] = entry
        self._changed()

    def drop(self, entry: Entry) -> None:
        """Remove the entry with the same names, without any check."""
        match entry:
            case User():
                self.users.pop(entry.name, None)
            case Vhost():
                self.vhosts.pop(entry.name, None)
            case Permission():
                self.permissions.pop((entry.user, entry.vhost), None)
            case TopicPermission():
                self.topic_permissions.pop((entry.user, entry.vhost, entry.exchange), None)
        self._changed()

    def _put_user(self, user: User) -> User:
        self.put(user)
        return user

    def _put_vhost(self, vhost: Vhost) -> Vhost:
        self.put(vhost)
        return vhost

    def _remove(self, entry: Entry) -> tuple[Entry, ...]:
        removed: list[Entry] = [entry]
        permissions: list[Permission | TopicPermission] = [*self.permissions.values(), *self.topic_permissions.values()]
        for permission in permissions:
            of_user = isinstance(entry, User) and permission.user == entry.name
            of_vhost = isinstance(entry, Vhost) and permission.vhost == entry.name
            if of_user or of_vhost:
                removed.append(permission)
        for each in removed:
            self.drop(each)
        return tuple(removed)

    def _changed(self) -> None:
        self.version += 1
        self._keys = None
        self._verdicts.clear()
        self._topic_verdicts.clear()
        self._restricted.clear()
        self._patterns.clear()
