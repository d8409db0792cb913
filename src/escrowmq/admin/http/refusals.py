"""What a refusal of the broker looks like over HTTP: status, error and reason as in RabbitMQ's management API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from escrowmq.admin.http.broker import BrokerRefused
from escrowmq.core.conditions import Condition

_REPLIES: Final[Mapping[str, str]] = {
    Condition.ACCESS_REFUSED.value: "403 ACCESS_REFUSED",
    Condition.RESOURCE_LOCKED.value: "405 RESOURCE_LOCKED",
    Condition.PRECONDITION_FAILED.value: "406 PRECONDITION_FAILED",
    Condition.ILLEGAL_STATE.value: "503 COMMAND_INVALID",
    Condition.COMMAND_INVALID.value: "503 COMMAND_INVALID",
    Condition.LIMIT_EXCEEDED.value: "506 RESOURCE_ERROR",
    Condition.NOT_ALLOWED.value: "530 NOT_ALLOWED",
    Condition.NOT_IMPLEMENTED.value: "540 NOT_IMPLEMENTED",
    Condition.UNAVAILABLE.value: "541 INTERNAL_ERROR",
}
"""The reply of AMQP 0-9-1 with which a reason begins, as tools expect it."""
_UNAUTHORISED: Final = frozenset((Condition.ACCESS_REFUSED.value, Condition.NOT_ALLOWED.value))


class Refusal(NamedTuple):
    """Status, error and reason of an answer."""

    status: int
    error: str
    reason: str


def refusal(refused: BrokerRefused, *, publishing: bool = False) -> Refusal:
    """Return the answer to a request that the broker refused. A missing permission is 401, but 400 for a publish."""
    text = str(refused)
    if refused.missing or refused.condition == Condition.NOT_FOUND.value:
        return Refusal(404, "Object Not Found", text)
    if refused.condition in _UNAUTHORISED and not publishing:
        return Refusal(401, "not_authorized", text)
    if refused.condition == Condition.UNAVAILABLE.value:
        return Refusal(503, "unavailable", text)
    reply = _REPLIES.get(refused.condition)
    return Refusal(400, "bad_request", text if reply is None else f"{reply} - {text}")
