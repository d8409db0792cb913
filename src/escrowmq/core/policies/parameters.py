"""Global parameters: named values that operators and their tools keep in the broker, which gives them no meaning."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from escrowmq.core.conditions import BrokerError, Condition, check_growth
from escrowmq.core.records.changes import encode_change
from escrowmq.core.records.kinds import Kind

if TYPE_CHECKING:
    from escrowmq.core.ports import Log

KINDS: Final = frozenset((Kind.PARAMETER_SET, Kind.PARAMETER_DELETED))
"""The kinds of records that `restore` accepts."""
MOST: Final = 500
LONGEST: Final = 16 * 1024
"""The number of parameters, and bytes of JSON of a value."""


class Host(Protocol):
    """The operations that are needed from the engine."""

    log: Log
    scarcity: str


class GlobalParameters:
    """Global parameters by name. A value is anything that JSON can express."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.values: dict[str, Any] = {}

    def put(self, name: str, value: Any) -> bool:
        """Set a parameter. Return whether it is new.

        Raises INVALID_ARGUMENT for a value that is too long, and LIMIT_EXCEEDED if there are too many, or while memory
        or disk space is scarce.
        """
        if not name:
            raise BrokerError(Condition.INVALID_ARGUMENT, "a parameter needs a name")
        if len(json.dumps(value)) > LONGEST:
            raise BrokerError(Condition.INVALID_ARGUMENT, f"value: it has more than {LONGEST} bytes of JSON")
        new = name not in self.values
        if new:
            check_growth(self._host.scarcity, f"global parameter '{name}'")
            if len(self.values) >= MOST:
                raise BrokerError(
                    Condition.LIMIT_EXCEEDED, f"there are {MOST} global parameters, the limit; delete one"
                )
        self.values[name] = value
        self._host.log.append(Kind.PARAMETER_SET, encode_change(name=name, value=value))
        return new

    def remove(self, name: str) -> None:
        """Remove a parameter. Raises NOT_FOUND."""
        if name not in self.values:
            raise BrokerError(Condition.NOT_FOUND, f"no global parameter '{name}'")
        del self.values[name]
        self._host.log.append(Kind.PARAMETER_DELETED, encode_change(name=name))

    def records(self) -> Iterator[tuple[Kind, dict[str, Any]]]:
        """Return the records that rebuild all parameters, for a snapshot."""
        return iter([(Kind.PARAMETER_SET, {"name": name, "value": value}) for name, value in self.values.items()])

    def restore(self, kind: Kind, fields: Mapping[str, Any]) -> None:
        """Apply a record of KINDS at recovery."""
        if kind is Kind.PARAMETER_SET:
            self.values[fields["name"]] = fields["value"]
        else:
            self.values.pop(fields["name"], None)
