"""A policy: its parts, what is allowed in them, and its record.

A definition has the names of queue arguments without their `x-`. An operator policy may have only those keys that limit
what a queue uses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from escrowmq.core.access.permissions import Pattern
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.messages.values import is_integer
from escrowmq.core.topology.arguments.checks import Check, Refused, natural, one_of, text
from escrowmq.core.topology.arguments.queue import ARGUMENTS, DEAD_LETTER_EXCHANGE, TYPE_ARGUMENT, USED_BY, QueueType

EXCHANGE: Final = "exchange"
"""Beside the types of queue, what a policy may apply to."""
APPLY_TO: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "all": frozenset((EXCHANGE, *USED_BY)),
        "exchanges": frozenset((EXCHANGE,)),
        "queues": frozenset(USED_BY),
        "classic_queues": frozenset(("classic",)),
        "quorum_queues": frozenset(("quorum",)),
        "streams": frozenset(("stream",)),
    }
)
ALTERNATE_EXCHANGE: Final = "alternate-exchange"
OPERATOR_KEYS: Final = frozenset(
    (
        "delivery-limit",
        "expires",
        "max-in-memory-bytes",
        "max-in-memory-length",
        "max-length",
        "max-length-bytes",
        "message-ttl",
    )
)
"""The keys of operator policies. Where both kinds of policy have one, the lower value counts."""
_FIXED: Final = frozenset(
    (
        "x-max-priority",
        "x-quorum-initial-group-size",
        "x-single-active-consumer",
        TYPE_ARGUMENT,
    )
)
"""Arguments that a queue can have only from its declaration."""
_MIRRORING: Final[Mapping[str, Check]] = {
    "ha-mode": text,
    "ha-params": lambda value, _: value,
    "ha-promote-on-failure": one_of("always", "when-synced", otherwise='"{}" is not known'),
    "ha-promote-on-shutdown": one_of("always", "when-synced", otherwise='"{}" is not known'),
    "ha-sync-batch-size": natural,
    "ha-sync-mode": one_of("automatic", "manual", otherwise='"{}" is not known'),
}
"""Keys of RabbitMQ that concern mirrored classic queues. They have no effect here."""
CHECKS: Final[Mapping[str, Check]] = MappingProxyType(
    {argument[2:]: given.check for argument, given in ARGUMENTS.items() if argument not in _FIXED}
    | {ALTERNATE_EXCHANGE: text, "delivery-limit": natural, **_MIRRORING}
)
"""The keys of definitions, each with the check of its value."""

MOST: Final = 500
"""The number of policies, and of operator policies, that a virtual host may have."""
LONGEST_PATTERN: Final = 1024
LONGEST_VALUE: Final = 255
"""Bytes of a pattern, and of a text in a definition."""
_GREATEST_PRIORITY: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy of a virtual host, or an operator policy (`operator`), which has names of its own.

    Of the policies that match a queue or an exchange, the one with the highest `priority` counts; of several, the first
    by name.
    """

    vhost: str
    name: str
    pattern: str
    definition: Mapping[str, Any]
    priority: int = 0
    apply_to: str = "all"
    operator: bool = False

    def check(self) -> None:
        """Raises INVALID_ARGUMENT, with the reason, unless every part is allowed."""
        if not self.name:
            _refuse("a policy needs a name")
        if self.apply_to not in APPLY_TO:
            _refuse(f"apply-to: {self.apply_to!r} is not known; use one of {', '.join(APPLY_TO)}")
        if not is_integer(self.priority) or abs(self.priority) > _GREATEST_PRIORITY:
            _refuse(f"priority: a whole number of 32 bits is needed, not {self.priority!r}")
        if len(self.pattern.encode("utf-8", "surrogatepass")) > LONGEST_PATTERN:
            _refuse(f"pattern: it has more than {LONGEST_PATTERN} bytes")
        Pattern(self.pattern)
        self._check_definition()

    def _check_definition(self) -> None:
        if not self.definition:
            _refuse("no policy provided: the definition is empty")
        known = OPERATOR_KEYS if self.operator else CHECKS.keys()
        unknown = sorted(key for key in self.definition if key not in known)
        if unknown:
            kind = "operator policy" if self.operator else "policy"
            _refuse(f"{', '.join(unknown)[:LONGEST_VALUE]}: not recognised {kind} settings")
        for key, value in self.definition.items():
            if isinstance(value, str) and len(value.encode("utf-8", "surrogatepass")) > LONGEST_VALUE:
                _refuse(f"{key}: the value has more than {LONGEST_VALUE} bytes")
            if isinstance(value, list | dict) and len(repr(value)) > LONGEST_VALUE:
                _refuse(f"{key}: the value is too long")
            try:
                CHECKS[key](value, {DEAD_LETTER_EXCHANGE: ""})
            except Refused as refused:
                _refuse(f"{key}: {refused.reason}")

    def suits(self, kind: QueueType | str) -> bool:
        """Return whether it may apply to queues of a type, or to exchanges. As in RabbitMQ, it does not apply to a type
        of queue that does not know one of its keys.
        """
        if kind not in APPLY_TO[self.apply_to]:
            return False
        return kind == EXCHANGE or all(_is_used(key, kind) for key in self.definition)

    def fields(self) -> dict[str, Any]:
        """Return the fields of its record."""
        return {
            "vhost": self.vhost,
            "name": self.name,
            "operator": self.operator,
            "pattern": self.pattern,
            "apply_to": self.apply_to,
            "priority": self.priority,
            "definition": dict(self.definition),
        }


def policy_of(fields: Mapping[str, Any]) -> Policy:
    """Return the policy of a record."""
    return Policy(
        fields["vhost"],
        fields["name"],
        fields["pattern"],
        fields["definition"],
        fields["priority"],
        fields["apply_to"],
        fields["operator"],
    )


def _is_used(key: str, kind: str) -> bool:
    if key in _MIRRORING:
        return kind == "classic"
    return key == ALTERNATE_EXCHANGE or f"x-{key}" in USED_BY[kind]  # type: ignore[index]


def _refuse(reason: str) -> None:
    raise BrokerError(Condition.INVALID_ARGUMENT, reason)
