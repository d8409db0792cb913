"""The status in the body of each response, and the table from the core's conditions to RocketMQ's codes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.wire.rocketmq.proto.definition_pb2 import Code, Status

if TYPE_CHECKING:
    from google.protobuf.duration_pb2 import Duration

    from escrowmq.wire.rocketmq.proto.definition_pb2 import Resource

CODES: Final[Mapping[Condition, Code]] = MappingProxyType(
    {
        Condition.NOT_FOUND: Code.NOT_FOUND,
        Condition.ACCESS_REFUSED: Code.FORBIDDEN,
        Condition.RESOURCE_LOCKED: Code.PRECONDITION_FAILED,
        Condition.PRECONDITION_FAILED: Code.PRECONDITION_FAILED,
        Condition.INVALID_ARGUMENT: Code.BAD_REQUEST,
        Condition.NOT_ALLOWED: Code.FORBIDDEN,
        Condition.NOT_IMPLEMENTED: Code.NOT_IMPLEMENTED,
        Condition.ILLEGAL_STATE: Code.PRECONDITION_FAILED,
        Condition.COMMAND_INVALID: Code.BAD_REQUEST,
        Condition.LIMIT_EXCEEDED: Code.TOO_MANY_REQUESTS,
        Condition.UNAVAILABLE: Code.INTERNAL_SERVER_ERROR,
        Condition.INTERNAL: Code.INTERNAL_SERVER_ERROR,
    }
)


_OK: Final = Status(code=Code.OK, message="OK")  # responses have copies of it


class RocketmqRefusal(Exception):  # noqa: N818 - a refusal that the client is told in the response
    """A request that is refused with a code of RocketMQ."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.status = Status(code=code, message=text)


def ok() -> Status:
    """Return the status of success. The text is that of RocketMQ's proxy."""
    return _OK


def refusal(error: BrokerError) -> Status:
    """Return the status for a refusal of the core."""
    return Status(code=CODES[error.condition], message=error.text)


def named(resource: Resource) -> str:
    """Return the name of a topic or group, with its namespace in front."""
    space = resource.resource_namespace
    return f"{space}%{resource.name}" if space else str(resource.name)


def milliseconds(duration: Duration) -> int:
    """Return a duration in milliseconds, within 63 bits."""
    return int(duration.seconds) * 1000 + int(duration.nanos) // 1_000_000
