"""The core's refusals as execution exceptions. Each of them ends the session, as AMQP 0-10 says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from escrowmq.core.conditions import Condition
from escrowmq.wire.amqp010.codec.spec import ErrorCode, ExecutionException
from escrowmq.wire.amqp010.sequence import MASK

ERROR_CODES: Final[Mapping[Condition, ErrorCode]] = {
    Condition.NOT_FOUND: ErrorCode.NOT_FOUND,
    Condition.ACCESS_REFUSED: ErrorCode.UNAUTHORIZED_ACCESS,
    Condition.RESOURCE_LOCKED: ErrorCode.RESOURCE_LOCKED,
    Condition.PRECONDITION_FAILED: ErrorCode.PRECONDITION_FAILED,
    Condition.INVALID_ARGUMENT: ErrorCode.INVALID_ARGUMENT,
    Condition.NOT_ALLOWED: ErrorCode.NOT_ALLOWED,
    Condition.NOT_IMPLEMENTED: ErrorCode.NOT_IMPLEMENTED,
    Condition.ILLEGAL_STATE: ErrorCode.ILLEGAL_STATE,
    Condition.COMMAND_INVALID: ErrorCode.COMMAND_INVALID,
    Condition.LIMIT_EXCEEDED: ErrorCode.RESOURCE_LIMIT_EXCEEDED,
    Condition.UNAVAILABLE: ErrorCode.INTERNAL_ERROR,  # it concerns one queue alone, for which there is no code
    Condition.INTERNAL: ErrorCode.INTERNAL_ERROR,
}
_LONGEST: Final = 4000
"""The octets of a description. The whole exception fits into one frame of any peer."""


def exception(code: ErrorCode, text: str, number: int | None = None, of: int = 0) -> ExecutionException:
    """Return an exception. `number` is that of the command that was refused, if any, and `of` is its `Command.CODE`."""
    return ExecutionException(
        error_code=code,
        command_id=None if number is None else number & MASK,
        class_code=None if number is None else of >> 8,
        command_code=None if number is None else of & 0xFF,
        field_index=0,
        description=text.encode("utf-8", "replace")[:_LONGEST].decode("utf-8", "ignore"),
        error_info={},
    )
