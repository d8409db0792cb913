"""Changes of RabbitMQ's management API to virtual hosts, users, permissions and limits."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Final

from escrowmq.admin.http.broker import BrokerRefused
from escrowmq.admin.http.listing import BadQuery
from escrowmq.admin.http.logins import ADMINISTRATOR, NotAuthorised
from escrowmq.admin.http.management import ADMINISTRATORS, MANAGEMENT
from escrowmq.admin.http.writing import DONE, ChangeAnswer, WriteRoute, Writing, made, missing_unless

CLOSED: Final = "Closed via management plugin"
"""What RabbitMQ tells a client whose connection is closed without a reason."""


_EVERYTHING: Final = {"configure": ".*", "write": ".*", "read": ".*"}


async def _put_vhost(writing: Writing) -> ChangeAnswer:
    """As in RabbitMQ, who makes a virtual host has all permissions in it."""
    vhost, user = writing.names["vhost"], writing.operator.user
    new = await writing.do("vhost.put", name=vhost)
    if new and user in {row["name"] for row in await writing.ask("user.list")}:
        await writing.do("permission.set", user=user, vhost=vhost, **_EVERYTHING)
    return made(new)


async def _delete_vhost(writing: Writing) -> ChangeAnswer:
    await writing.do("vhost.delete", name=writing.names["vhost"], force=writing.asked("force"))
    return DONE


async def _put_user(writing: Writing) -> ChangeAnswer:
    name, body = writing.names["user"], writing.body
    if "password" in body and "password_hash" in body:
        raise BadQuery("both_password_and_password_hash_are_provided")
    given = {key: writing.text(key) for key in ("password", "password_hash", "hashing_algorithm") if key in body}
    if "password_hash" not in given:
        given.pop("hashing_algorithm", None)
    tags = _tags(writing)
    done = made(await writing.do("user.put", name=name, tags=tags, **given))
    unknown = [tag for tag in tags if tag not in MANAGEMENT]
    if unknown:
        return done._replace(warning=f"these tags give no rights, because the broker does not know them: {unknown}")
    return done


def _tags(writing: Writing) -> list[str]:
    """Return the tags of the body: a list, or a text with commas; or `administrator`, as in old versions."""
    tags = writing.body.get("tags")
    if tags is None and "administrator" in writing.body:
        return [ADMINISTRATOR] if writing.flag("administrator", False) else []
    if tags is None:
        raise BadQuery("tags_not_present")
    if isinstance(tags, str):
        tags = [tag.strip() for tag in tags.split(",") if tag.strip()]
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise BadQuery("tags: a list of texts is needed, or a text with commas")
    return tags


async def _delete_user(writing: Writing) -> ChangeAnswer:
    await writing.do("user.delete", name=writing.names["user"])
    return DONE


async def _delete_users(writing: Writing) -> ChangeAnswer:
    users = writing.body.get("users")
    if not isinstance(users, list) or not all(isinstance(name, str) for name in users):
        raise BadQuery("users: a list of names is needed")
    known = {row["name"] for row in await writing.ask("user.list")}
    for name in dict.fromkeys(users):
        if name in known:
            await writing.do("user.delete", name=name)
    return DONE


async def _put_permission(writing: Writing) -> ChangeAnswer:
    patterns = {key: writing.text(key) for key in ("configure", "write", "read")}
    return made(await writing.do("permission.set", **writing.names, **patterns))


async def _delete_permission(writing: Writing) -> ChangeAnswer:
    rows = await writing.ask("permission.list", **writing.names)
    missing_unless(bool(rows))
    await writing.do("permission.clear", **writing.names)
    return DONE


async def _put_topic_permission(writing: Writing) -> ChangeAnswer:
    patterns = {key: writing.text(key) for key in ("exchange", "write", "read")}
    return made(await writing.do("topic_permission.set", **writing.names, **patterns))


async def _delete_topic_permissions(writing: Writing) -> ChangeAnswer:
    rows = await writing.ask("topic_permission.list", **writing.names)
    missing_unless(bool(rows))
    await writing.do("topic_permission.clear", **writing.names)
    return DONE


async def _delete_topic_permission(writing: Writing) -> ChangeAnswer:
    """Remove the topic permission for one exchange. RabbitMQ answers 204 also if there is none."""
    await writing.do("topic_permission.clear", **writing.names)
    return DONE


async def _put_vhost_limit(writing: Writing) -> ChangeAnswer:
    names = writing.names
    await writing.do("vhost.limit", name=names["vhost"], limit=names["name"], value=writing.number("value"))
    return DONE


async def _delete_vhost_limit(writing: Writing) -> ChangeAnswer:
    await writing.do("vhost.limit", name=writing.names["vhost"], limit=writing.names["name"])
    return DONE


async def _put_user_limit(writing: Writing) -> ChangeAnswer:
    names = writing.names
    await writing.do("user.limit", name=names["user"], limit=names["name"], value=writing.number("value"))
    return DONE


async def _delete_user_limit(writing: Writing) -> ChangeAnswer:
    await writing.do("user.limit", name=writing.names["user"], limit=writing.names["name"])
    return DONE


async def _close_connection(writing: Writing) -> ChangeAnswer:
    """Close a connection: any for an administrator, the own ones for others."""
    peer = writing.names["name"]
    row: dict[str, Any] = writing.one(await writing.ask("connection.list"), peer=peer)
    if ADMINISTRATOR not in writing.operator.tags and row.get("user") != writing.operator.user:
        raise NotAuthorised("User not authorised to access object")
    await writing.do("connection.close", peer=peer, reason=_reason(writing))
    return DONE


async def _close_connections_of_user(writing: Writing) -> ChangeAnswer:
    """Close the connections of a user: of any for an administrator, the own ones for others."""
    user = writing.names["user"]
    if ADMINISTRATOR not in writing.operator.tags and user != writing.operator.user:
        raise NotAuthorised("User not authorised to access object")
    for row in await writing.ask("connection.list"):
        if row.get("user") == user:
            with contextlib.suppress(BrokerRefused):  # it may be closed already
                await writing.do("connection.close", peer=row["peer"], reason=_reason(writing))
    return DONE


def _reason(writing: Writing) -> str:
    return (writing.headers.get("x-reason") or CLOSED)[:1000]


ACCESS_CHANGES: Final[Mapping[str, Mapping[str, WriteRoute]]] = {
    "vhosts/{vhost}": {
        "PUT": WriteRoute(_put_vhost, ADMINISTRATORS),
        "DELETE": WriteRoute(_delete_vhost, ADMINISTRATORS),
    },
    "users/bulk-delete": {"POST": WriteRoute(_delete_users, ADMINISTRATORS)},
    "users/{user}": {
        "PUT": WriteRoute(_put_user, ADMINISTRATORS),
        "DELETE": WriteRoute(_delete_user, ADMINISTRATORS),
    },
    "permissions/{vhost}/{user}": {
        "PUT": WriteRoute(_put_permission, ADMINISTRATORS),
        "DELETE": WriteRoute(_delete_permission, ADMINISTRATORS),
    },
    "topic-permissions/{vhost}/{user}": {
        "PUT": WriteRoute(_put_topic_permission, ADMINISTRATORS),
        "DELETE": WriteRoute(_delete_topic_permissions, ADMINISTRATORS),
    },
    "topic-permissions/{vhost}/{user}/{exchange}": {"DELETE": WriteRoute(_delete_topic_permission, ADMINISTRATORS)},
    "vhost-limits/{vhost}/{name}": {
        "PUT": WriteRoute(_put_vhost_limit, ADMINISTRATORS),
        "DELETE": WriteRoute(_delete_vhost_limit, ADMINISTRATORS),
    },
    "user-limits/{user}/{name}": {
        "PUT": WriteRoute(_put_user_limit, ADMINISTRATORS),
        "DELETE": WriteRoute(_delete_user_limit, ADMINISTRATORS),
    },
    "connections/{name}": {"DELETE": WriteRoute(_close_connection)},
    "connections/username/{user}": {"DELETE": WriteRoute(_close_connections_of_user)},
}
"""The changes by path below `/api/` and by method."""
