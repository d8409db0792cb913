"""The arguments of declarations and bindings: Qpid's names for arguments that the core has under RabbitMQ's.

Arguments that neither has a meaning for are kept and have no effect, as in both.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.wire.amqp010.codec.structs import Struct
from escrowmq.wire.amqp010.codec.types import UnknownStruct, Value

_NUMBERS: Final[Mapping[str, str]] = {
    "qpid.max_count": "x-max-length",
    "qpid.max_size": "x-max-length-bytes",
}
_POLICIES: Final[Mapping[str, str]] = {
    "reject": "reject-publish",
    "ring": "drop-head",
    "ring_strict": "drop-head",
}
_PRIORITIES: Final = ("qpid.priorities", "x-qpid-priorities")


def plain(arguments: Mapping[str, Value] | None) -> dict[str, object]:
    """Return arguments with values of Python's own types, as the core stores them. Raises INVALID_ARGUMENT for a
    struct.
    """
    return {key: _plain(value) for key, value in (arguments or {}).items()}


def _plain(value: Value) -> object:
    if value is None or isinstance(value, bool | Decimal):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bytes):
        return bytes(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, Mapping):
        return plain(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    assert isinstance(value, Struct | UnknownStruct), value
    raise BrokerError(Condition.INVALID_ARGUMENT, "an argument cannot be a struct")


def queue_arguments(arguments: Mapping[str, Value] | None) -> dict[str, object]:
    """Return the arguments of a queue as the core knows them. An argument that has RabbitMQ's name, too, wins.

    `qpid.max_count` and `qpid.max_size` limit a queue, which refuses messages then unless `qpid.policy_type` is `ring`.
    `qpid.priorities` and `x-qpid-priorities` are numbers of levels. Raises INVALID_ARGUMENT for a struct.
    """
    given = plain(arguments)
    found: dict[str, object] = {}
    for name, ours in _NUMBERS.items():
        if given.get(name):
            found[ours] = _number(given[name])
    if found:
        policy = str(given.get("qpid.policy_type", "reject"))
        found["x-overflow"] = _POLICIES.get(policy, "reject-publish")
    for name in _PRIORITIES:
        levels = _number(given.get(name))
        if isinstance(levels, int) and levels > 1:
            found["x-max-priority"] = levels - 1
    return {**found, **given}


def _number(value: object) -> object:
    """Return the number that a text of digits denotes, which some of Qpid's clients send."""
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 20 else value
