"""SQL selectors: the expressions of JMS, and RabbitMQ's dialect of them, compiled to closures.

`jms_selector`, `qpid_selector` and `sql_filter` differ in the meaning of identifiers only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple

from escrowmq.wire.selectors import operators
from escrowmq.wire.selectors.grammar import AMQP, JMS, parser
from escrowmq.wire.selectors.jms import jms_name, qpid_name
from escrowmq.wire.selectors.operators import Evaluate
from escrowmq.wire.selectors.values import (
    APPLICATION,
    HEADER,
    HEADER_FIELDS,
    PROPERTIES,
    PROPERTY_FIELDS,
    Matcher,
    MessageFields,
    SelectorError,
)

LONGEST: Final = 4096
"""Characters of an expression."""
DEEPEST: Final = 64
"""Operations within each other. Parentheses without an operation, and chains such as `a OR b OR c`, do not count."""
_LARGEST_INTEGER: Final = 1 << 64
_SECTIONS: Final = {
    "header": (HEADER, HEADER_FIELDS),
    "h": (HEADER, HEADER_FIELDS),
    "properties": (PROPERTIES, PROPERTY_FIELDS),
    "p": (PROPERTIES, PROPERTY_FIELDS),
    "application-properties": (APPLICATION, None),
    "application_properties": (APPLICATION, None),
    "a": (APPLICATION, None),
}


def jms_selector(text: str) -> Matcher:
    """Compile a message selector of JMS. Raises SelectorError."""
    return compiled(text, JMS, _compiler(jms_name))


def qpid_selector(text: str) -> Matcher:
    """Compile a message selector of a client of AMQP 0-10. Raises SelectorError."""
    return compiled(text, JMS, _compiler(qpid_name))


def sql_filter(text: str) -> Matcher:
    """Compile an expression of the filter `amqp:sql-filter`. Raises SelectorError.

    An identifier is an application property, or a field with its section in front: `properties.subject` or `p.subject`,
    `header.priority` or `h.priority`.
    """
    return compiled(text, AMQP, _compiler(amqp_name))


def amqp_name(name: str) -> Evaluate:
    """Return what an identifier of an `amqp:sql-filter` stands for. Raises SelectorError for an unknown field."""
    section, dot, rest = name.partition(".")
    if not dot or section not in _SECTIONS:
        return operators.field(APPLICATION + name)
    prefix, fields = _SECTIONS[section]
    if fields is not None and rest not in fields:
        raise SelectorError(f"{name} is unknown; the section has {', '.join(sorted(fields))}")
    return operators.field(prefix + rest)


def compiled(text: str, part: str, compiler: Compiler) -> Matcher:
    """Compile an expression of the dialect whose identifiers consist of `part`. Raises SelectorError.

    A dialect always passes the same compiler, for which its parser is built once.
    """
    if len(text) > LONGEST:
        raise SelectorError(f"the expression has {len(text)} characters; at most {LONGEST} are allowed")
    from lark.exceptions import UnexpectedInput, VisitError

    try:
        node: _Expression = parser(part, compiler).parse(text)
    except UnexpectedInput as error:
        raise SelectorError(_complaint(text, error)) from None
    except VisitError as error:
        if isinstance(error.orig_exc, SelectorError):
            raise error.orig_exc from None
        raise
    evaluate = node.evaluate

    def matches(values: MessageFields) -> bool:
        return evaluate(values) is True

    return matches


def _complaint(text: str, error: Any) -> str:
    at, token = error.pos_in_stream, getattr(error, "token", None)
    if at is None or not 0 <= at < len(text) or (token is not None and token.type == "$END"):
        return f"the expression ends too early, at position {len(text) + 1}"
    shown = token or text[at]
    hint = "; the string has no end" if text[at] == "'" and shown == "'" else ""
    return f"unexpected {str(shown)[:40]!r} at position {at + 1}{hint}"


class _Expression(NamedTuple):
    """A part of an expression. `text` is the value of a string literal."""

    evaluate: Evaluate
    depth: int = 0
    text: str | None = None


def _over(evaluate: Evaluate, *parts: _Expression) -> _Expression:
    depth = 1 + max(part.depth for part in parts)
    if depth > DEEPEST:
        raise SelectorError(f"more than {DEEPEST} operations are within each other")
    return _Expression(evaluate, depth)


def _unquoted(token: str) -> str:
    quote = token[0]
    return token[1:-1].replace(quote * 2, quote)


class Compiler:
    """Turns each rule of the grammar, from the inside out, into a node. Its methods have the names of the rules."""

    def __init__(self, named: Callable[[str], Evaluate]) -> None:
        self._named = named

    def start(self, parts: list[_Expression]) -> _Expression:
        return parts[0]

    def disjunction(self, parts: list[_Expression]) -> _Expression:
        if len(parts) == 1:
            return parts[0]
        return _over(operators.disjunction([part.evaluate for part in parts]), *parts)

    def conjunction(self, parts: list[_Expression]) -> _Expression:
        if len(parts) == 1:
            return parts[0]
        return _over(operators.conjunction([part.evaluate for part in parts]), *parts)

    def negation(self, parts: list[Any]) -> _Expression:
        return _over(operators.negation(parts[1].evaluate), parts[1])

    def comparison(self, parts: list[Any]) -> _Expression:
        left, symbol, right = parts
        return _over(operators.compare(str(symbol), left.evaluate, right.evaluate), left, right)

    def between(self, parts: list[Any]) -> _Expression:
        value, no, low, high = parts
        above = operators.compare(">=", value.evaluate, low.evaluate)
        below = operators.compare("<=", value.evaluate, high.evaluate)
        return _unless(no, operators.conjunction([above, below]), value, low, high)

    def in_list(self, parts: list[Any]) -> _Expression:
        value, no, *members = parts
        texts = [member.text for member in members]
        if None in texts:
            found = operators.in_list(value.evaluate, [member.evaluate for member in members])
        else:
            found = operators.in_texts(value.evaluate, frozenset(texts))
        return _unless(no, found, value, *members)

    def like(self, parts: list[Any]) -> _Expression:
        value, no, pattern, escape = parts
        escaped = "" if escape is None else _unquoted(escape)
        if escape is not None and len(escaped) != 1:
            raise SelectorError(f"ESCAPE must be followed by one character, not by {str(escape)[:40]}")
        return _unless(no, operators.like(value.evaluate, _unquoted(pattern), escaped), value)

    def is_null(self, parts: list[Any]) -> _Expression:
        value, no = parts
        return _unless(no, operators.is_null(value.evaluate), value)

    def addition(self, parts: list[Any]) -> _Expression:
        if len(parts) == 1:
            return parts[0]  # type: ignore[no-any-return]
        first, *rest = parts
        steps = [(str(symbol), operand.evaluate) for symbol, operand in zip(rest[::2], rest[1::2], strict=True)]
        return _over(operators.arithmetic(first.evaluate, steps), first, *rest[1::2])

    multiplication = addition

    def signed(self, parts: list[Any]) -> _Expression:
        return _over(operators.signed(str(parts[0]), parts[1].evaluate), parts[1])

    def identifier(self, parts: list[str]) -> _Expression:
        return _Expression(self._named(str(parts[0])))

    def quoted(self, parts: list[str]) -> _Expression:
        return _Expression(self._named(_unquoted(parts[0])))

    def string(self, parts: list[str]) -> _Expression:
        text = _unquoted(parts[0])
        return _Expression(operators.constant(text), text=text)

    def integer(self, parts: list[str]) -> _Expression:
        digits = parts[0].lower().removesuffix("l")
        octal = len(digits) > 1 and digits.startswith("0") and not digits.startswith("0x")
        if octal and set(digits) & {"8", "9"}:
            raise SelectorError(f"{parts[0]} begins with 0, so it is octal, and has another digit")
        number = int(digits, 16 if digits.startswith("0x") else 8 if octal else 10)
        if number >= _LARGEST_INTEGER:
            raise SelectorError(f"the number {parts[0][:40]} is too large")
        return _Expression(operators.constant(number))

    def decimal(self, parts: list[str]) -> _Expression:
        return _Expression(operators.constant(float(parts[0].lower().rstrip("fd"))))

    def true(self, parts: list[Any]) -> _Expression:
        del parts
        return _Expression(operators.constant(value=True))

    def false(self, parts: list[Any]) -> _Expression:
        del parts
        return _Expression(operators.constant(value=False))


def _unless(no: object, evaluate: Evaluate, *parts: _Expression) -> _Expression:
    """Return a predicate that may have NOT in its middle."""
    return _over(evaluate if no is None else operators.negation(evaluate), *parts)


@cache
def _compiler(named: Callable[[str], Evaluate]) -> Compiler:
    return Compiler(named)
