"""The result of a handler."""

from __future__ import annotations

from typing import NamedTuple

from escrowmq.wire.rocketmq.remoting.codes import ResultCode
from escrowmq.wire.rocketmq.remoting.frames import Command


class HandlerReply(NamedTuple):
    """A response, and the LSN up to which the log must be synced before it is sent (0: no wait). Unless it is `urgent`,
    it does not hasten the sync.
    """

    response: Command
    after: int = 0
    urgent: bool = True


def success(fields: dict[str, str] | None = None, body: bytes = b"", after: int = 0) -> HandlerReply:
    """Return the response to a request that was carried out."""
    return HandlerReply(Command(ResultCode.SUCCESS, fields or {}, body), after)
