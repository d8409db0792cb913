"""A line in the log for every change that an operator makes. The line never contains a secret."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import wraps
from typing import Any, Final

from escrowmq.admin.operation import Operation

LOGGED: Final[Mapping[str, tuple[str, ...]]] = {
    "user.add": ("name", "tags"),
    "user.delete": ("name",),
    "user.password": ("name",),
    "user.tags": ("name", "tags"),
    "vhost.add": ("name",),
    "vhost.delete": ("name", "force"),
    "permission.set": ("user", "vhost", "configure", "write", "read"),
    "permission.clear": ("user", "vhost"),
    "topic_permission.set": ("user", "vhost", "exchange", "write", "read"),
    "topic_permission.clear": ("user", "vhost", "exchange"),
    "connection.close": ("peer", "reason"),
    "hold.release": ("vhost", "queue", "group"),
    "link.release": ("vhost", "container", "link"),
    "link.expire": ("vhost", "container", "link", "role"),
    "tx.commit": ("xid",),
    "tx.rollback": ("xid",),
    "tx.forget": ("xid",),
    "half.resume": ("vhost", "transaction"),
    "half.commit": ("vhost", "transaction"),
    "half.drop": ("vhost", "transaction"),
    "topic.create": ("vhost", "name", "partitions", "message_type"),
    "topic.delete": ("vhost", "name"),
    "group.create": ("vhost", "name", "fifo", "attempts"),
    "group.reset": ("vhost", "name", "topic", "to", "partition"),
    "group.delete": ("vhost", "name"),
    "progress.assign": ("vhost", "application", "user"),
    "progress.reset": ("vhost", "application"),
}
"""Operations that change something, and the arguments that are logged."""

_log = logging.getLogger("escrowmq.admin")


def audited(operations: Mapping[str, Operation]) -> dict[str, Operation]:
    """Return the same operations, of which those in `LOGGED` write their line once they have succeeded. These take two
    arguments more for it: `by`, the user who asked, and `why`, the reason that was given.
    """
    return {name: _audited(name, each) if name in LOGGED else each for name, each in operations.items()}


def _audited(name: str, operation: Operation) -> Operation:
    @wraps(operation)
    async def run(*, by: str = "", why: str = "", **arguments: Any) -> Any:
        result = await operation(**arguments)
        arguments |= {key: value for key, value in (("by", by), ("why", why)) if value}
        given = {key: arguments[key] for key in (*LOGGED[name], "by", "why") if key in arguments}
        text = " ".join(f"{key}={value!r}" for key, value in given.items())
        _log.info("%s %s", name, text, extra={"fields": {"operation": name} | given})
        return result

    return run
