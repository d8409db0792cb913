"""Checks of argument values: functions that take a value and return it decoded, or refuse it with a reason.

The reasons are Erlang terms, the form that RabbitMQ's users know.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, NoReturn, TypeAlias

from escrowmq.core.messages.values import is_integer, type_name

_LONGEST_KEY: Final = 255
MS_OF_UNIT: Final = {
    "Y": 365 * 86_400_000,
    "M": 30 * 86_400_000,
    "D": 86_400_000,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1_000,
}
LONGEST_DURATION: Final = 10 * MS_OF_UNIT["Y"]

_PERIOD: Final = re.compile(rf"([0-9]{{1,18}})([{''.join(MS_OF_UNIT)}])")

# The value, and all arguments of the same declaration.
Check: TypeAlias = Callable[[object, Mapping[str, object]], object]


class Refused(Exception):  # noqa: N818 - it is not an error of this program
    """The argument does not allow the value; `reason` says why."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def integer(value: object, arguments: Mapping[str, object]) -> int:
    """A whole number."""
    del arguments
    if not is_integer(value):
        raise Refused(f'"expected integer, got {type_name(value)}"')
    return int(value)


def natural(value: object, arguments: Mapping[str, object]) -> int:
    """A whole number, 0 or more."""
    number = integer(value, arguments)
    if number < 0:
        raise Refused(f"{{value_negative,{number}}}")
    return number


def short_of_a_decade(value: object, arguments: Mapping[str, object]) -> int:
    """Milliseconds, from 0 to ten years."""
    number = natural(value, arguments)
    if number > LONGEST_DURATION:
        raise Refused(f"{{value_too_large,{number}}}")
    return number


duration = short_of_a_decade


def positive(then: Check = natural) -> Check:
    """A whole number other than 0 that also passes `then`."""

    def check(value: object, arguments: Mapping[str, object]) -> object:
        if integer(value, arguments) == 0:
            raise Refused("{value_zero,0}")
        return then(value, arguments)

    return check


def at_most(most: int) -> Check:
    """A whole number from 0 to `most`."""

    def check(value: object, arguments: Mapping[str, object]) -> int:
        number = natural(value, arguments)
        if number > most:
            raise Refused(f"{{max_value_exceeded,{number}}}")
        return number

    return check


def version(value: object, arguments: Mapping[str, object]) -> int:
    """A version of the storage of classic queues."""
    number = natural(value, arguments)
    if number not in {1, 2}:
        raise Refused(f"\"unsupported queue version '{number}'\"")
    return number


def boolean(value: object, arguments: Mapping[str, object]) -> bool:
    """True or false."""
    del arguments
    return value if isinstance(value, bool) else _refuse_type(value)


def text(value: object, arguments: Mapping[str, object]) -> str:
    """Any string."""
    del arguments
    return value if isinstance(value, str) else _refuse_type(value)


def one_of(*allowed: str, otherwise: str) -> Check:
    """One of these strings; `otherwise` is the reason for refusal, with {} for the given value."""

    def check(value: object, arguments: Mapping[str, object]) -> str:
        given = text(value, arguments)
        if given not in allowed:
            raise Refused(otherwise.format(given))
        return given

    return check


def routing_key(exchange_argument: str) -> Check:
    """A routing key (0 to 255 bytes), allowed only together with the argument that names the exchange."""

    def check(value: object, arguments: Mapping[str, object]) -> str:
        given = text(value, arguments)
        if exchange_argument not in arguments:
            raise Refused("routing_key_but_no_dlx_defined")
        if len(given.encode("utf-8", "surrogatepass")) > _LONGEST_KEY:
            raise Refused(f"{{routing_key_too_long,{len(given)}}}")
        return given

    return check


def period(otherwise: str) -> Check:
    """A time span with its unit, such as 7D or 1h, in milliseconds; `otherwise` is the reason for refusal."""

    def check(value: object, arguments: Mapping[str, object]) -> int:
        span = parse_period(text(value, arguments))
        if span is None:
            raise Refused(otherwise)
        return span

    return check


def parse_period(given: str) -> int | None:
    """Return the milliseconds of a number above 0 and a unit: Y (365 days), M (30 days), D, h, m, s. Otherwise None."""
    found = _PERIOD.fullmatch(given)
    if found is None or int(found[1]) == 0:
        return None
    return int(found[1]) * MS_OF_UNIT[found[2]]


def _refuse_type(value: object) -> NoReturn:
    raise Refused(f"{{unacceptable_type,{type_name(value)}}}")
