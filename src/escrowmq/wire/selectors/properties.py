"""The filters `amqp:properties-filter` and `amqp:application-properties-filter`: lists of required values.

The rules are those of the OASIS draft *AMQP Filter Expressions*, section 4, as RabbitMQ 4 applies them: a message
passes if each named field has the required value. A string `&p:abc` requires the prefix `abc`, `&s:abc` the suffix, and
a leading `&&` stands for one `&`. A required value of null is always met.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from escrowmq.wire.selectors.operators import equals
from escrowmq.wire.selectors.values import (
    APPLICATION,
    PROPERTIES,
    PROPERTY_FIELDS,
    Matcher,
    MessageFields,
    SelectorError,
)

MOST: Final = 16
"""Fields of one filter."""
_Test: TypeAlias = Callable[[object], bool]


def properties_filter(wanted: Mapping[str, object]) -> Matcher:
    """Compile a filter on the properties section. Raises SelectorError."""
    unknown = sorted(set(wanted) - PROPERTY_FIELDS)
    if unknown:
        raise SelectorError(f"{unknown[0]} is no field of the properties section")
    return _all({PROPERTIES + name: value for name, value in wanted.items()})


def application_properties_filter(wanted: Mapping[str, object]) -> Matcher:
    """Compile a filter on application properties. Raises SelectorError."""
    return _all({APPLICATION + name: value for name, value in wanted.items()})


def _all(wanted: Mapping[str, object]) -> Matcher:
    if not 0 < len(wanted) <= MOST:
        raise SelectorError(f"a filter must name between 1 and {MOST} fields, not {len(wanted)}")
    tests = [(name, _test(value)) for name, value in wanted.items() if value is not None]

    def matches(values: MessageFields) -> bool:
        return all(test(values.value(name)) for name, test in tests)

    return matches


def _test(wanted: object) -> _Test:
    if isinstance(wanted, str) and wanted.startswith("&"):
        kind, rest = wanted[:3], wanted[3:]
        if kind == "&p:":
            return lambda value: isinstance(value, str) and value.startswith(rest)
        if kind == "&s:":
            return lambda value: isinstance(value, str) and value.endswith(rest)
        if not wanted.startswith("&&"):
            raise SelectorError(f"{wanted[:40]!r} begins with &, but not with &p:, &s: or &&")
        wanted = wanted[1:]
    return lambda value: value is not None and equals(value, wanted)
