"""Operations on users. A user's permissions are in `admin.permissions`."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from escrowmq.admin.authority import checked_name
from escrowmq.admin.connections import ConnectionAdmin
from escrowmq.admin.links import ending
from escrowmq.admin.operation import Listing, Operation, OperationRefused, Row
from escrowmq.admin.pieces import Pieces
from escrowmq.admin.ports import BrokerProcess, OpenConnection
from escrowmq.core.access.imported import DEFAULT_ALGORITHM, imported
from escrowmq.core.access.permissions import PasswordHashes, User

TAGS: Final = ("administrator", "monitoring", "management", "policymaker")
"""The tags that give rights."""
_KEY: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_KEY_OCTETS: Final = 10
LONGEST_PASSWORD: Final = 1024
"""Bytes of a new password. To prepare a much longer one for SCRAM would take seconds."""
_LIMITS: Final = {"max-connections": "max_connections", "max-channels": "max_channels"}

_log = logging.getLogger("escrowmq.admin")


class UserAdmin:
    """The operations by name are in `operations`. A change is on disk when its operation returns."""

    def __init__(self, process: BrokerProcess, connections: ConnectionAdmin, pieces: Pieces) -> None:
        self._process = process
        self._broker = process.broker
        self._access = process.broker.access
        self._connections = connections
        self._pieces = pieces
        self.operations: Mapping[str, Operation] = {
            "user.list": self.list_users,
            "user.add": self.add_user,
            "user.put": self.put_user,
            "user.delete": self.delete_user,
            "user.password": self.set_password,
            "user.tags": self.set_tags,
            "user.limits": self.set_limits,
            "user.limit": self.set_limit,
            "user.key.add": self.add_key,
            "user.key.delete": self.delete_key,
        }

    async def list_users(self) -> Listing:
        """Return every user; `password` says whether the user has one."""
        return Listing(self._pieces, map(_row, list(self._access.users.values())))

    async def add_user(self, name: str, password: str | None = None, tags: Iterable[str] = ()) -> None:
        """Add a user. A user without a password can log in with a client certificate only."""
        checked_name(name, "name of a user")
        if name in self._access.users:
            raise OperationRefused(f"user '{name}' already exists")
        given = _checked(tags)
        hashes = await self._hash(password)
        await self._set(
            lambda: self._access.add_user(name, hashes.password_hash, given, scram_hashes=hashes.scram_hashes)
        )
        _warn_of_unknown(name, given)

    async def put_user(
        self,
        name: str,
        tags: Iterable[str],
        password: str | None = None,
        password_hash: str | None = None,
        hashing_algorithm: str = DEFAULT_ALGORITHM,
    ) -> bool:
        """Add a user, or replace tags and password of one. `password_hash` is one in the form of RabbitMQ's
        definitions (`access.imported`). Return whether the user is new.
        """
        checked_name(name, "name of a user")
        given = _checked(tags)
        if password_hash is not None:
            hashes = PasswordHashes(imported(password_hash, hashing_algorithm))
        else:
            hashes = await self._hash(password)

        def change() -> bool:
            new = name not in self._access.users
            if new:
                user = self._access.add_user(name, hashes.password_hash, given, hashes.scram_hashes)
            else:
                self._access.set_password(name, *hashes)
                user = self._access.set_tags(name, given)
            self._broker.directory.record_access(user)
            return new

        new = await self._process.durably(change)
        _warn_of_unknown(name, given)
        return new

    async def delete_user(self, name: str) -> None:
        """Delete a user, the user's permissions and link termini, and close the user's connections.

        Connections are closed first, then termini ended, both piece by piece. Those that appear meanwhile are removed
        in one piece with the user. A crash in between leaves the user with the remaining ones.
        """
        self._access.user(name)

        def has(connection: OpenConnection) -> bool:
            return connection.user == name

        reason = f"user '{name}' was deleted"
        await self._connections.close_those(has, reason)
        await self._pieces.result(ending(self._process, self._broker.termini.of_user(name)))
        await self._process.durably(lambda: self._remove(name))
        await self._connections.close_those(has, reason)

    def _remove(self, name: str) -> None:
        removed = self._access.remove_user(name)
        self._broker.termini.end_of_user(name)
        self._broker.directory.record_access_removed(removed)

    async def set_password(self, name: str, password: str | None = None) -> None:
        """Set or, with None, remove a user's password."""
        self._access.user(name)
        hashes = await self._hash(password)
        await self._set(lambda: self._access.set_password(name, *hashes))

    async def set_tags(self, name: str, tags: Iterable[str]) -> None:
        """Set a user's tags, which replace earlier ones."""
        given = _checked(tags)
        await self._set(lambda: self._access.set_tags(name, given))
        _warn_of_unknown(name, given)

    async def set_limits(self, name: str, max_connections: int | None = None, max_channels: int | None = None) -> None:
        """Set all limits of a user; None means no limit. Connections and channels that are open stay open."""
        await self._set(lambda: self._access.set_user_limits(name, max_connections, max_channels))

    async def set_limit(self, name: str, limit: str, value: int | None = None) -> None:
        """Set one limit of a user, `max-connections` or `max-channels`; None or a negative number removes it. Raises
        OperationRefused, BrokerError.
        """
        field = _LIMITS.get(limit)
        if field is None:
            raise OperationRefused(f"unknown limit {limit!r}; known ones: {', '.join(_LIMITS)}")
        most = None if value is None or value < 0 else value

        def change() -> User:
            user = self._access.user(name)
            limits = {"max_connections": user.max_connections, "max_channels": user.max_channels} | {field: most}
            return self._access.set_user_limits(name, **limits)

        await self._set(change)

    async def add_key(self, name: str, key: str = "") -> Row:
        """Give a user an access key, by default one that is made up. Return it with its secret key."""
        key = key or secrets.token_hex(_KEY_OCTETS)
        if not _KEY.fullmatch(key):
            raise OperationRefused("an access key has 1 to 64 letters, digits, '-', '_' and '.'")
        secret_key = self._process.secret_key(key)
        await self._set(lambda: self._access.add_access_key(name, key))
        return {"access_key": key, "secret_key": secret_key}

    async def delete_key(self, name: str, key: str) -> None:
        """Remove an access key, and close the user's connections, some of which may have used it."""
        await self._set(lambda: self._access.remove_access_key(name, key))
        await self._connections.close_those(
            lambda connection: connection.user == name, f"access key '{key}' of user '{name}' was deleted"
        )

    async def _set(self, change: Callable[[], User]) -> None:
        await self._process.durably(lambda: self._broker.directory.record_access(change()))

    async def _hash(self, password: str | None) -> PasswordHashes:
        if password is None:
            return PasswordHashes()
        if not password:
            raise OperationRefused("the password is empty")
        try:
            length = len(password.encode())
        except UnicodeEncodeError:
            raise OperationRefused("the password is not valid UTF-8, so no client could log in with it") from None
        if length > LONGEST_PASSWORD:
            raise OperationRefused(f"the password has more than {LONGEST_PASSWORD:,} bytes")
        return await self._process.hash_password(password)


def _checked(tags: Iterable[str]) -> tuple[str, ...]:
    """Return tags of a user. Raises BrokerError for one that is too long or no text."""
    given = tuple(tags)
    for tag in given:
        checked_name(tag, "tag")
    return given


def _warn_of_unknown(name: str, tags: Iterable[str]) -> None:
    """Warn of tags that may be mistyped. They are kept, since RabbitMQ admits any, for plugins and scripts."""
    unknown = [tag for tag in tags if tag not in TAGS]
    if unknown:
        _log.warning(
            "user '%s' has tags that the broker does not know, and that give no rights: %s; those that do: %s",
            *(name, ", ".join(unknown), ", ".join(TAGS)),
            extra={"fields": {"user": name}},
        )


def _row(user: User) -> Row:
    return {
        "name": user.name,
        "tags": list(user.tags),
        "password": bool(user.password_hash),
        "max_connections": user.max_connections,
        "max_channels": user.max_channels,
        "access_keys": list(user.access_keys),
    }
