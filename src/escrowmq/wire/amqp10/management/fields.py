"""Values in the bodies of management requests and responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from escrowmq.core.messages.values import is_time
from escrowmq.wire.amqp10.addresses import LONGEST_NAME
from escrowmq.wire.amqp10.codec.encoding import encode
from escrowmq.wire.amqp10.codec.types import Timestamp, ULong, Value
from escrowmq.wire.amqp10.formats import header_value, is_header
from escrowmq.wire.amqp10.management.requests import ManagementRequest, Problem

_ABSENT: Final = object()
_LARGEST_LONG: Final = 2**63 - 1


class Fields:
    """The fields of a request's body, a map. Each is taken once; `end` refuses what is left."""

    __slots__ = ("_left", "_what")

    def __init__(self, request: ManagementRequest, what: str) -> None:
        """`what` names the object in explanations. Raises Problem if the body is no map, or too large."""
        body = request.body
        self._what = what
        if not isinstance(body, dict) or not all(isinstance(name, str) for name in body):
            raise Problem(400, f"the body of a request for a {what} must be a map with names as keys")
        limit = request.connection.limits.arguments
        if len(encode(body)) > limit:
            raise Problem(400, f"the body of a request for a {what} is larger than {limit} bytes, the configured limit")
        self._left = {str(name): value for name, value in body.items()}

    def flag(self, name: str, default: bool) -> bool:
        """Take a truth value. Raises Problem."""
        value = self._left.pop(name, default)
        if not isinstance(value, bool):
            raise self._bad(name, value)
        return value

    def text(self, name: str, default: str | None = None) -> str:
        """Take a text; without a default, it must not be missing. Raises Problem."""
        value = self._left.pop(name, _ABSENT)
        if value is _ABSENT and default is not None:
            return default
        if not isinstance(value, str):
            raise self._bad(name, value)
        return str(value)

    def arguments(self) -> dict[str, Any]:
        """Take the arguments, in the form in which a client of AMQP 0-9-1 would have sent them. Raises Problem."""
        value = self._left.pop("arguments", {})
        if not isinstance(value, dict) or not all(
            isinstance(name, str) and is_header(item) for name, item in value.items()
        ):
            raise self._bad("arguments", value)
        return {str(name): header_value(item) for name, item in value.items()}

    def end(self) -> None:
        """Raises Problem if there are further fields."""
        for name, value in self._left.items():
            raise self._bad(name, value)

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def _bad(self, name: str, value: object) -> Problem:
        if value is _ABSENT:
            return Problem(400, f"the {self._what} property '{name}' is missing")
        return Problem(400, f"bad {self._what} property '{name}'")


def checked_name(name: str, what: str) -> str:
    """Return the name of a queue or exchange to be created, or a routing key. Raises Problem."""
    if "\n" in name or "\r" in name:
        raise Problem(400, f"the name of a {what} must not contain line ends")
    if len(name.encode("utf-8", "replace")) > LONGEST_NAME:
        raise Problem(400, f"the name of a {what} has more than {LONGEST_NAME} bytes")
    return name


def sent(value: Any) -> Value:
    """Return an argument of any protocol in the form in which a response contains it."""
    if isinstance(value, Mapping):
        return {_text(key): sent(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [sent(item) for item in value]
    if value is None or isinstance(value, bool | bytes):
        return value
    if is_time(value):
        return Timestamp(value * 1000)
    if isinstance(value, int):
        return int(value) if value <= _LARGEST_LONG else ULong(value)
    return float(value) if isinstance(value, float) else _text(value)


def _text(value: object) -> str:
    return str(value).encode("utf-8", "replace").decode()
