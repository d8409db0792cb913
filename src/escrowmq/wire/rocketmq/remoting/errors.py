"""Faults of a request, as results of classic remoting."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from escrowmq.core.conditions import Condition
from escrowmq.wire.rocketmq.remoting.codes import ResultCode

RESULTS: Final[Mapping[Condition, ResultCode]] = MappingProxyType(
    {
        Condition.NOT_FOUND: ResultCode.QUERY_NOT_FOUND,
        Condition.ACCESS_REFUSED: ResultCode.NO_PERMISSION,
        Condition.RESOURCE_LOCKED: ResultCode.NO_PERMISSION,
        Condition.PRECONDITION_FAILED: ResultCode.MESSAGE_ILLEGAL,
        Condition.INVALID_ARGUMENT: ResultCode.INVALID_PARAMETER,
        Condition.NOT_ALLOWED: ResultCode.NO_PERMISSION,
        Condition.NOT_IMPLEMENTED: ResultCode.NOT_SUPPORTED,
        Condition.ILLEGAL_STATE: ResultCode.ILLEGAL_OPERATION,
        Condition.COMMAND_INVALID: ResultCode.SYSTEM_ERROR,
        Condition.LIMIT_EXCEEDED: ResultCode.SYSTEM_BUSY,
        Condition.UNAVAILABLE: ResultCode.NOT_AVAILABLE,
        Condition.INTERNAL: ResultCode.SYSTEM_ERROR,
    }
)
"""The result for each condition under which the core refuses a request."""


class RequestFault(Exception):  # noqa: N818 - a fault of the request, which gets the result and the text
    """A request is refused. The connection goes on."""

    def __init__(self, result: ResultCode, text: str) -> None:
        super().__init__(text)
        self.result = result
        self.text = text
