"""When a message is to be delivered: the delay that its headers ask for (DLY-3).

AMQP 0-9-1 has the header `x-delay`, in milliseconds. AMQP 1.0 has the message annotations `x-opt-delivery-time`, in
milliseconds since the epoch, and `x-opt-delivery-delay`, in milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.messages.values import is_integer, is_time, shown

X_DELAY: Final = "x-delay"
DELIVERY_TIME: Final = "x-opt-delivery-time"
DELIVERY_DELAY: Final = "x-opt-delivery-delay"
LONGEST: Final = (1 << 32) - 1
"""The longest delay, in milliseconds: about 49 days, as in RabbitMQ's plugin."""


def due_time(headers: Mapping[str, Any], now: int) -> int:
    """Return when a message that arrived at `now` is due, in milliseconds since the epoch; `now` if that is at once.

    Raises PRECONDITION_FAILED for a delay that is not understood, or beyond the limit.
    """
    if DELIVERY_TIME in headers:
        value = headers[DELIVERY_TIME]
        # A time is in whole seconds, so it is rounded up: no message may arrive early.
        due = int(value) * 1000 + 999 if is_time(value) else _milliseconds(DELIVERY_TIME, value)
        name, delay = DELIVERY_TIME, due - now
    else:
        name = DELIVERY_DELAY if DELIVERY_DELAY in headers else X_DELAY
        value = headers.get(name)
        delay = 0 if value is None else _milliseconds(name, value)
    if delay > LONGEST:
        raise BrokerError(
            Condition.PRECONDITION_FAILED,
            f"invalid {name} {shown(value)}: the delay is {delay} ms, and at most {LONGEST} ms are allowed",
        )
    return now + max(delay, 0)


def _milliseconds(name: str, value: object) -> int:
    if is_integer(value):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and len(value) <= len(str(LONGEST)) + 4 and value.removeprefix("-").isdecimal():
        return int(value)
    raise BrokerError(
        Condition.PRECONDITION_FAILED, f"invalid {name} {shown(value)}: it must be a whole number of milliseconds"
    )
