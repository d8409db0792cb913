"""How definitions combine with each other and with the arguments of a queue. The rules are those of RabbitMQ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from escrowmq.core.messages.values import is_integer
from escrowmq.core.policies.policy import CHECKS
from escrowmq.core.topology.arguments.checks import Refused, parse_period
from escrowmq.core.topology.arguments.queue import ARGUMENTS, DEAD_LETTER_EXCHANGE, QueueOptions

_LOWEST: Final = frozenset(
    ("expires", "message-ttl", "max-length", "max-length-bytes", "max-age", "delivery-limit", "max-in-memory-bytes")
)
"""The keys of which the lower value counts if the queue has the argument, too. Of other keys the argument counts."""


class Effective(NamedTuple):
    """What policies say about a queue or an exchange.

    Args:
        policy: the name of the policy that counts; empty if there is none.
        operator_policy: the name of the operator policy that does.
        definition: both definitions together.
    """

    policy: str = ""
    operator_policy: str = ""
    definition: Mapping[str, Any] = {}


def combined(definition: Mapping[str, Any], limits: Mapping[str, Any]) -> dict[str, Any]:
    """Return a definition together with that of an operator policy: of a key that both have, the lower value counts."""
    both = definition.keys() & limits.keys()
    return {**definition, **limits} | {key: min(definition[key], limits[key]) for key in both}


def with_definition(arguments: Mapping[str, Any], definition: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a queue to which a definition applies."""
    merged = dict(arguments)
    for key, value in definition.items():
        argument = f"x-{key}"
        if argument in ARGUMENTS and (argument not in merged or _is_lower(key, value, merged[argument])):
            merged[argument] = value
    return merged


def _is_lower(key: str, value: Any, argument: Any) -> bool:
    if key not in _LOWEST:
        return False
    if key == "max-age":
        return (parse_period(value) or 0) < (parse_period(str(argument)) or 0)
    # A negative delivery limit stands for none.
    return not is_integer(argument) or bool(value < argument) or argument < 0


def resolved(declared: QueueOptions, arguments: Mapping[str, Any], definition: Mapping[str, Any]) -> QueueOptions:
    """Return the options of a queue that was declared with `arguments`, to which a definition applies."""
    changed: dict[str, Any] = {}
    merged = with_definition(arguments, definition)
    for key in definition:
        argument = f"x-{key}"
        option = ARGUMENTS[argument].option if argument in ARGUMENTS else None
        if option is not None and (argument not in arguments or merged[argument] is not arguments[argument]):
            try:
                changed[option] = CHECKS[key](merged[argument], {DEAD_LETTER_EXCHANGE: ""})
            except Refused:  # only in a journal of another version
                continue
    return replace(declared, **changed) if changed else declared
