"""The operators of SQL selectors, as closures. A boolean is True, False, or None for *unknown* (JMS, section 3.8.1.2).

An operand of the wrong type is not an error, since properties have the types that publishers gave them. A comparison
of different types is false; arithmetic with anything but numbers is unknown.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from math import fmod
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import re2

from escrowmq.wire.selectors.values import MessageFields, SelectorError

Evaluate: TypeAlias = Callable[[MessageFields], object]
_LARGEST: Final = 1 << 64  # results of arithmetic beyond it are unknown, as are infinite ones


def constant(value: object) -> Evaluate:
    return lambda _: value


def field(name: str) -> Evaluate:
    return lambda values: values.value(name)


def _kind(value: object) -> type:
    """Return a type that comparable values have in common."""
    if isinstance(value, bool):
        return bool
    if isinstance(value, int | float):
        return float
    return str if isinstance(value, str) else type(value)


def equals(left: object, right: object) -> bool:
    """Return whether two values other than None are equal and comparable."""
    return left == right and _kind(left) is _kind(right)


def _numbers(left: object, right: object) -> bool:
    return _kind(left) is float and _kind(right) is float


_ORDER: Final[Mapping[str, Callable[[Any, Any], bool]]] = MappingProxyType(
    {"<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge}
)


def compare(symbol: str, left: Evaluate, right: Evaluate) -> Evaluate:
    order = _ORDER.get(symbol)

    def ordered(values: MessageFields) -> object:
        one, other = left(values), right(values)
        if one is None or other is None or order is None:
            return None
        return _numbers(one, other) and order(one, other)

    def equal(values: MessageFields) -> object:
        one, other = left(values), right(values)
        return None if one is None or other is None else equals(one, other)

    def different(values: MessageFields) -> object:
        one, other = left(values), right(values)
        return None if one is None or other is None else one != other and _kind(one) is _kind(other)

    return ordered if order is not None else equal if symbol == "=" else different


def conjunction(parts: Sequence[Evaluate]) -> Evaluate:
    def evaluate(values: MessageFields) -> object:
        result: object = True
        for part in parts:
            value = part(values)
            if value is False:
                return False
            if value is not True:
                result = None
        return result

    return evaluate


def disjunction(parts: Sequence[Evaluate]) -> Evaluate:
    def evaluate(values: MessageFields) -> object:
        result: object = False
        for part in parts:
            value = part(values)
            if value is True:
                return True
            if value is not False:
                result = None
        return result

    return evaluate


def negation(part: Evaluate) -> Evaluate:
    def evaluate(values: MessageFields) -> object:
        value = part(values)
        return not value if isinstance(value, bool) else None

    return evaluate


def is_null(part: Evaluate) -> Evaluate:
    return lambda values: part(values) is None


def in_list(part: Evaluate, members: Sequence[Evaluate]) -> Evaluate:
    def evaluate(values: MessageFields) -> object:
        value = part(values)
        if value is None:
            return None
        result: object = False
        for member in members:
            other = member(values)
            if other is None:
                result = None
            elif equals(value, other):
                return True
        return result

    return evaluate


def in_texts(part: Evaluate, texts: frozenset[str]) -> Evaluate:
    """Return `in_list` for a list of strings."""

    def evaluate(values: MessageFields) -> object:
        value = part(values)
        return None if value is None else isinstance(value, str) and value in texts

    return evaluate


def like(part: Evaluate, pattern: str, escape: str) -> Evaluate:
    """Raises SelectorError if the pattern is too long for its engine, or ends with the escape character."""
    try:
        match = re2.compile(_expression(pattern, escape), _options()).fullmatch
    except re2.error as error:
        raise SelectorError(f"the pattern of LIKE is refused: {error}") from error

    def evaluate(values: MessageFields) -> object:
        value = part(values)
        if value is None:
            return None
        return isinstance(value, str) and match(value.encode("utf-8", "surrogatepass")) is not None

    return evaluate


def _expression(pattern: str, escape: str) -> bytes:
    """Return the pattern as a regular expression: % stands for any characters, _ for one."""
    found: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, None)
            if escaped is None:
                raise SelectorError("the pattern of LIKE ends with its escape character")
            found.append(re2.escape(escaped))
        elif character == "%":
            found.append(".*")
        else:
            found.append("." if character == "_" else re2.escape(character))
    return "".join(found).encode("utf-8", "surrogatepass")


def _options() -> Any:
    options = re2.Options()
    options.dot_nl = True
    options.never_capture = True
    options.log_errors = False
    return options


def _divide(left: float, right: float) -> float:
    if isinstance(left, int) and isinstance(right, int):  # rounded towards zero, as in Java
        quotient = abs(left) // abs(right)
        return quotient if (left < 0) == (right < 0) else -quotient
    return left / right


def _remainder(left: float, right: float) -> float:
    if isinstance(left, int) and isinstance(right, int):
        remainder = abs(left) % abs(right)
        return -remainder if left < 0 else remainder
    return fmod(left, right)


_ARITHMETIC: Final[Mapping[str, Callable[[Any, Any], float]]] = MappingProxyType(
    {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": _divide, "%": _remainder}
)


def arithmetic(first: Evaluate, rest: Sequence[tuple[str, Evaluate]]) -> Evaluate:
    """Return `first` with the operations of `rest` done from left to right."""
    steps = [(_ARITHMETIC[symbol], operand) for symbol, operand in rest]

    def evaluate(values: MessageFields) -> object:
        result = first(values)
        for operation, operand in steps:
            other = operand(values)
            if result is None or other is None or not _numbers(result, other):
                return None
            try:
                result = operation(result, other)
            except (ArithmeticError, ValueError):
                return None
            if not -_LARGEST < result < _LARGEST and isinstance(result, int):
                return None
        return result

    return evaluate


def signed(symbol: str, part: Evaluate) -> Evaluate:
    def evaluate(values: MessageFields) -> object:
        value = part(values)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return -value if symbol == "-" else value

    return evaluate
