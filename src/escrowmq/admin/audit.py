"""A line in the log for every change that somebody makes with the commands; never with a secret in it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import wraps
from typing import Any, Final

from escrowmq.admin.operation import Command

TOLD: Final[Mapping[str, tuple[str, ...]]] = {
    "user.add": ("name", "tags"),
    "user.delete": ("name",),
    "user.password": ("name",),
    "user.tags": ("name", "tags"),
    "vhost.add": ("name",),
    "vhost.delete": ("name",),
    "permission.set": ("user", "vhost", "configure", "write", "read"),
    "permission.clear": ("user", "vhost"),
    "topic.set": ("user", "vhost", "exchange", "write", "read"),
    "topic.clear": ("user", "vhost", "exchange"),
    "connection.close": ("peer", "reason"),
    "hold.release": ("vhost", "queue", "group"),
    "tx.commit": ("xid",),
    "tx.rollback": ("xid",),
    "tx.forget": ("xid",),
}
"""Commands that change something, and which of their arguments are told."""

_log = logging.getLogger("escrowmq.admin")


def audited(commands: Mapping[str, Command]) -> dict[str, Command]:
    """The same commands; those of `TOLD` log what they have done, when it is done."""
    return {name: _audited(name, command) if name in TOLD else command for name, command in commands.items()}


def _audited(name: str, command: Command) -> Command:
    @wraps(command)
    async def run(**arguments: Any) -> Any:
        result = await command(**arguments)
        _log.info("%s %s", name, " ".join(f"{key}={arguments[key]!r}" for key in TOLD[name] if key in arguments))
        return result

    return run
