"""Arguments of consumers: their priority, and the position in a stream at which they begin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, cast

from escrowmq.core.messages.values import is_integer, is_time, shown, type_name
from escrowmq.core.topology.arguments.checks import Check, Refused, boolean, integer, parse_period
from escrowmq.core.topology.arguments.queue import QueueType, check_argument, refuse_unused

OffsetKind: TypeAlias = Literal["first", "last", "next", "offset", "time", "age"]

PRIORITY: Final = "x-priority"
CANCEL_ON_FAILOVER: Final = "x-cancel-on-ha-failover"
STREAM_OFFSET: Final = "x-stream-offset"


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The place at which a reader of a stream begins.

    `first` and `last` are the oldest and the newest message of the stream, `next` is the next one to arrive. For
    `offset` the value is a position counted from 0, for `time` milliseconds since the epoch, for `age` milliseconds
    before now.
    """

    kind: OffsetKind = "next"
    value: int = 0


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """The decoded arguments of a consumer. Consumers of a higher `priority` are served first."""

    priority: int = 0
    cancel_on_failover: bool = False
    stream_offset: StreamOffset = StreamOffset()


def _stream_offset(value: object, arguments: Mapping[str, object]) -> StreamOffset:
    del arguments
    if is_integer(value):
        return StreamOffset("offset", max(int(value), 0))
    if is_time(value):
        return StreamOffset("time", int(value) * 1000)
    if isinstance(value, str):
        if value in {"first", "last", "next"}:
            return StreamOffset(cast("OffsetKind", value))
        age = parse_period(value)
        if age is not None:
            return StreamOffset("age", age)
    term = f'<<"{value}">>' if isinstance(value, str) else shown(value)
    raise Refused(f"{{invalid_stream_offset_arg,{{{type_name(value)},{term}}}}}")


# In the order in which they are checked: the check, and the field of `ConsumerOptions`.
CONSUMER_ARGUMENTS: Final[Mapping[str, tuple[Check, str]]] = MappingProxyType(
    {
        PRIORITY: (integer, "priority"),
        CANCEL_ON_FAILOVER: (boolean, "cancel_on_failover"),
        STREAM_OFFSET: (_stream_offset, "stream_offset"),
    }
)

CONSUMERS_USE: Final[Mapping[QueueType, tuple[str, ...]]] = MappingProxyType(
    {
        "classic": (CANCEL_ON_FAILOVER, PRIORITY),
        "quorum": (PRIORITY,),
        "stream": (STREAM_OFFSET,),
    }
)


def consumer_options(vhost: str, queue: str, kind: QueueType, arguments: Mapping[str, object]) -> ConsumerOptions:
    """Check and decode the arguments of a consumer on a queue of type `kind`. Raises PRECONDITION_FAILED."""
    what = f"queue '{queue}' in vhost '{vhost}'"
    used = CONSUMERS_USE[kind]
    decoded: dict[str, Any] = {}
    for argument, (check, option) in CONSUMER_ARGUMENTS.items():
        if argument in arguments and argument in used:
            decoded[option] = check_argument(argument, check, arguments, what)
    refuse_unused(arguments, CONSUMER_ARGUMENTS, used, kind, what)
    return ConsumerOptions(**decoded)
