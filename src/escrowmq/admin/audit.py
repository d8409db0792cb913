"""A line in the log and a record in the journal for every change that an operator makes. Neither contains a secret."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping, Sequence
from functools import wraps
from typing import Any, Final

from escrowmq.admin.action import OperatorAction, acting
from escrowmq.admin.operation import Operation, OperationRefused
from escrowmq.admin.ports import BrokerProcess
from escrowmq.core.access.grant import Grant

LONGEST_REASON: Final = 1000
"""Characters of the reason that is given for a change."""
LOGGED: Final[Mapping[str, tuple[str, ...]]] = {
    "user.add": ("name", "tags"),
    "user.put": ("name", "tags"),
    "user.delete": ("name",),
    "user.password": ("name",),
    "user.tags": ("name", "tags"),
    "user.limits": ("name", "max_connections", "max_channels"),
    "user.limit": ("name", "limit", "value"),
    "user.key.add": ("name", "key"),
    "user.key.delete": ("name", "key"),
    "vhost.add": ("name",),
    "vhost.put": ("name",),
    "vhost.delete": ("name", "force"),
    "vhost.limits": ("name", "max_connections", "max_queues"),
    "vhost.limit": ("name", "limit", "value"),
    "permission.set": ("user", "vhost", "configure", "write", "read"),
    "permission.clear": ("user", "vhost"),
    "topic_permission.set": ("user", "vhost", "exchange", "write", "read"),
    "topic_permission.clear": ("user", "vhost", "exchange"),
    "policy.set": ("vhost", "name", "pattern", "definition", "priority", "apply_to"),
    "policy.clear": ("vhost", "name"),
    "operator_policy.set": ("vhost", "name", "pattern", "definition", "priority", "apply_to"),
    "operator_policy.clear": ("vhost", "name"),
    "parameter.set": ("name",),
    "parameter.clear": ("name",),
    "exchange.declare": ("vhost", "name", "type", "durable", "auto_delete", "internal", "arguments"),
    "exchange.delete": ("vhost", "name", "if_unused"),
    "queue.declare": ("vhost", "name", "durable", "auto_delete", "arguments"),
    "queue.delete": ("vhost", "name", "if_unused", "if_empty"),
    "queue.purge": ("vhost", "name"),
    "binding.add": ("vhost", "source", "destination", "destination_type", "routing_key", "arguments"),
    "binding.delete": ("vhost", "source", "destination", "destination_type", "properties_key"),
    "message.publish": ("vhost", "exchange", "routing_key"),
    "message.get": ("vhost", "queue", "count", "disposition"),
    "message.move": ("vhost", "queue", "destination", "count", "position"),
    "connection.close": ("peer", "reason"),
    "definitions.import": ("section",),
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
REASONED: Final = frozenset(("tx.commit", "tx.rollback", "tx.forget", "half.resume", "half.commit", "half.drop"))
"""Heuristic decisions, for which every interface must give a reason."""

_log = logging.getLogger("escrowmq.admin")


def audited(operations: Mapping[str, Operation], process: BrokerProcess) -> dict[str, Operation]:
    """Return the same operations, of which those in `LOGGED` write their line once they have succeeded, and their
    record together with the change. These take two arguments more for it: `by`, the user who asked, which operations
    that check the user's permissions get as well, and `why`, the reason that was given. `scopes` are those of the token
    by which that user has logged in (`LoginAdmin`), and give the user its rights. Those in `REASONED` are refused
    without a reason.
    """
    return {name: _audited(name, each, process) if name in LOGGED else each for name, each in operations.items()}


def _audited(name: str, operation: Operation, process: BrokerProcess) -> Operation:
    checks_user = "by" in inspect.signature(operation).parameters

    @wraps(operation)
    async def run(*, by: str = "", why: str = "", scopes: Sequence[str] | None = None, **arguments: Any) -> Any:
        if name in REASONED:
            _check_reason(why)
        given = {key: arguments[key] for key in LOGGED[name] if key in arguments}
        action = OperatorAction(name, given, by, why, Grant(by, scopes) if scopes is not None else None)
        with acting(action):
            result = await operation(**arguments, **({"by": by} if checks_user else {}))
            if not action.recorded:  # the change itself needs no record
                await process.durably(lambda: None)
        shown = given | {key: value for key, value in (("by", by), ("why", why)) if value}
        text = " ".join(f"{key}={value!r}" for key, value in shown.items())
        _log.info("%s %s", name, text, extra={"fields": {"operation": name} | shown})
        return result

    return run


def _check_reason(why: str) -> None:
    if not why.strip() or len(why) > LONGEST_REASON:
        raise OperationRefused(f"a reason of 1 to {LONGEST_REASON} characters is needed, which the journal keeps")
