"""The entries of access control as fields of records, and the way back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from escrowmq.core.access.access import Access
from escrowmq.core.access.permissions import Entry, Permission, TopicPermission, User, Vhost
from escrowmq.core.records.kinds import Kind

ACCESS_KINDS: Final = frozenset(
    {
        Kind.USER_SET,
        Kind.USER_DELETED,
        Kind.PERMISSION_SET,
        Kind.PERMISSION_DELETED,
        Kind.TOPIC_PERMISSION_SET,
        Kind.TOPIC_PERMISSION_DELETED,
    }
)
"""The kinds that `restore` accepts."""


def set_record(entry: Entry) -> tuple[Kind, dict[str, Any]]:
    """Return the record that adds or replaces `entry`."""
    match entry:
        case User(name, password_hash, tags):
            limits = _limits(max_connections=entry.max_connections, max_channels=entry.max_channels)
            fields = {"name": name, "password_hash": password_hash, "tags": list(tags)} | limits
            if entry.scram_hashes:
                fields["scram_hashes"] = list(entry.scram_hashes)
            if entry.access_keys:
                fields["access_keys"] = list(entry.access_keys)
            return Kind.USER_SET, fields
        case Vhost(name):
            limits = _limits(max_connections=entry.max_connections, max_queues=entry.max_queues)
            return Kind.VHOST_SET, {"name": name} | limits
        case Permission(user, vhost, configure, write, read):
            fields = {"user": user, "vhost": vhost, "configure": configure, "write": write, "read": read}
            return Kind.PERMISSION_SET, fields
        case TopicPermission(user, vhost, exchange, write, read):
            fields = {"user": user, "vhost": vhost, "exchange": exchange, "write": write, "read": read}
            return Kind.TOPIC_PERMISSION_SET, fields


def _limits(**limits: int | None) -> dict[str, Any]:
    """Return the fields of the limits that are set."""
    return {name: limit for name, limit in limits.items() if limit is not None}


def vhost_of(fields: Mapping[str, Any]) -> Vhost:
    """Return the virtual host of a VHOST_SET record."""
    return Vhost(fields["name"], fields.get("max_connections"), fields.get("max_queues"))


def deleted_record(entry: Entry) -> tuple[Kind, dict[str, Any]]:
    """Return the record that removes `entry`. The permissions of a removed user or virtual host need no record."""
    match entry:
        case User(name):
            return Kind.USER_DELETED, {"name": name}
        case Vhost(name):
            return Kind.VHOST_DELETED, {"name": name}
        case Permission(user, vhost):
            return Kind.PERMISSION_DELETED, {"user": user, "vhost": vhost}
        case TopicPermission(user, vhost, exchange):
            return Kind.TOPIC_PERMISSION_DELETED, {"user": user, "vhost": vhost, "exchange": exchange}


def restore(access: Access, kind: Kind, fields: Mapping[str, Any]) -> None:
    """Apply a record of ACCESS_KINDS at recovery. Raises NOT_FOUND if it removes an entry that does not exist."""
    match kind:
        case Kind.USER_SET:
            access.put(
                User(
                    fields["name"],
                    fields["password_hash"],
                    tuple(fields["tags"]),
                    fields.get("max_connections"),
                    fields.get("max_channels"),
                    tuple(fields.get("scram_hashes", ())),
                    tuple(fields.get("access_keys", ())),
                )
            )
        case Kind.USER_DELETED:
            access.remove_user(fields["name"])
        case Kind.PERMISSION_SET:
            access.put(Permission(**fields))
        case Kind.PERMISSION_DELETED:
            access.clear_permission(fields["user"], fields["vhost"])
        case Kind.TOPIC_PERMISSION_SET:
            access.put(TopicPermission(**fields))
        case Kind.TOPIC_PERMISSION_DELETED:
            access.clear_topic_permission(fields["user"], fields["vhost"], fields["exchange"])
        case _:
            raise AssertionError(f"{kind.name} is no record of access control")
