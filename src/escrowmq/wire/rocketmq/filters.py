"""Filters of a subscription: tags, or expressions of SQL92. They decide on the broker (GRP-6)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from escrowmq.wire.formats import translated
from escrowmq.wire.rocketmq.content import PROTOCOL, properties_of
from escrowmq.wire.rocketmq.properties import parse
from escrowmq.wire.selectors import operators
from escrowmq.wire.selectors.grammar import JMS
from escrowmq.wire.selectors.sql import Compiler, compiled
from escrowmq.wire.selectors.values import SelectorError

if TYPE_CHECKING:
    from escrowmq.core.messages.envelope import Envelope
    from escrowmq.wire.selectors.operators import Evaluate
    from escrowmq.wire.selectors.values import MessageFields

TAG: Final = "TAG"
SQL92: Final = "SQL92"
EVERYTHING: Final = "*"
LONGEST: Final = 4096
"""Characters of an expression."""
MOST_TAGS: Final = 256

Wanted: TypeAlias = "Callable[[Envelope, bytes], bool]"
"""Returns whether a message with this envelope and content passes a filter."""


class FilterError(ValueError):
    """A filter is refused. The text says why."""


@lru_cache(1024)
def wanted(kind: str, expression: str) -> Wanted | None:
    """Return the filter for an expression of a kind, which is TAG, SQL92, or empty for TAG. None lets everything pass.

    Raises:     FilterError: the expression is malformed or too long, or its kind is unknown.
    """
    if len(expression) > LONGEST:
        raise FilterError(f"the filter has {len(expression)} characters; at most {LONGEST} are allowed")
    if kind in {TAG, ""}:
        return _by_tag(expression)
    if kind == SQL92:
        return _by_sql(expression)
    raise FilterError(f"the kind of filter {kind[:40]!r} is unknown; there are {TAG} and {SQL92}")


def _by_tag(expression: str) -> Wanted | None:
    tags = frozenset(tag for part in expression.split("||") if (tag := part.strip()))
    if not tags or EVERYTHING in tags:
        return None
    if len(tags) > MOST_TAGS:
        raise FilterError(f"the filter has {len(tags)} tags; at most {MOST_TAGS} are allowed")

    def passes(envelope: Envelope, content: bytes) -> bool:
        del content
        return envelope.routing_key in tags

    return passes


def _by_sql(expression: str) -> Wanted:
    try:
        matches = compiled(expression, JMS, _COMPILER)
    except SelectorError as error:
        raise FilterError(str(error)) from None

    def passes(envelope: Envelope, content: bytes) -> bool:
        return matches(_Stored(envelope, content))

    return passes


class _Stored:
    """The properties of a stored message, as fields for an expression."""

    __slots__ = ("_content", "_envelope", "_found")

    def __init__(self, envelope: Envelope, content: bytes) -> None:
        self._envelope = envelope
        self._content = content
        self._found: dict[str, str] | None = None

    def value(self, name: str) -> object | None:
        """Return a property as text, or None if the message does not have it."""
        found = self._found
        if found is None:
            found = self._found = stored_properties(self._envelope, self._content)
        return found.get(name)


def stored_properties(envelope: Envelope, content: bytes) -> dict[str, str]:
    """Return the properties of a stored message of any protocol, as clients of RocketMQ see them."""
    if envelope.protocol == PROTOCOL:
        return parse(properties_of(content))
    return parse(properties_of(translated(envelope, content, PROTOCOL)[1]))


def _as_number(value: object) -> object:
    """A text that looks like a number, as that number; anything else as it is."""
    if not isinstance(value, str):
        return value
    try:
        return int(value)
    except ValueError:
        try:
            return float(value)
        except ValueError:
            return value


def _beside(operand: Evaluate, other: Evaluate) -> Evaluate:
    """`operand`, whose text becomes a number if it is compared with one: all properties of RocketMQ are texts."""

    def evaluate(values: MessageFields) -> object:
        value = operand(values)
        if isinstance(value, str) and isinstance(other(values), int | float):
            return _as_number(value)
        return value

    return evaluate


class _Compiler(Compiler):
    """The dialect of RocketMQ: an identifier is a property, and texts are compared with numbers as numbers."""

    def __init__(self) -> None:
        super().__init__(operators.field)

    def comparison(self, parts: list[Any]) -> Any:
        left, symbol, right = parts
        one, other = left.evaluate, right.evaluate
        return super().comparison(
            [left._replace(evaluate=_beside(one, other)), symbol, right._replace(evaluate=_beside(other, one))]
        )

    def between(self, parts: list[Any]) -> Any:
        value, no, low, high = parts
        evaluate = _beside(value.evaluate, low.evaluate)
        return super().between([value._replace(evaluate=evaluate), no, low, high])


_COMPILER: Final = _Compiler()
