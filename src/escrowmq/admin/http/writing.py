"""A request that changes something: who asks, the names in the path, and the JSON in the body."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

from escrowmq.admin.http.broker import AskedBroker
from escrowmq.admin.http.kept_lists import KeptLists
from escrowmq.admin.http.listing import BadQuery
from escrowmq.admin.http.logins import Operator
from escrowmq.admin.http.management import MANAGEMENT, NothingThere, Reading
from escrowmq.admin.values import NESTED, is_nested

LONGEST_BODY: Final = 960 << 10
"""Bytes of a request's body."""
_ABSENT: Final = object()
_BOOLEANS: Final[Mapping[Any, bool]] = {True: True, False: False, "true": True, "false": False}


class ChangeAnswer(NamedTuple):
    """The answer to a change: a status, perhaps a body in JSON, the path of what was made, and a warning."""

    status: int
    body: Any = _ABSENT
    location: str = ""
    warning: str = ""

    @property
    def headers(self) -> dict[str, str]:
        """The headers for what is not in the body."""
        headers = {"location": self.location} if self.location else {}
        if self.warning:
            text = ascii(self.warning)[1:-1].replace("\\", "\\\\").replace('"', '\\"')
            headers["warning"] = f'299 escrowmq "{text}"'
        return headers

    @property
    def has_body(self) -> bool:
        """Whether there is a body."""
        return self.body is not _ABSENT


CREATED: Final = ChangeAnswer(201)
DONE: Final = ChangeAnswer(204)


class Writing(Reading):
    """One request. `do` asks the broker in the name of the user."""

    def __init__(
        self,
        broker: AskedBroker,
        lists: KeptLists,
        operator: Operator,
        names: Mapping[str, str],
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: Mapping[str, Any],
    ) -> None:
        super().__init__(broker, lists, operator, names, query, headers)
        self.body = body

    async def do(self, operation: str, **arguments: Any) -> Any:
        """Return the result of a change."""
        return await self.ask(operation, **arguments, **self.operator.asking)

    @property
    def name(self) -> str:
        """The name of the exchange in the path, or of another object."""
        name = self.names["name"]
        return "" if name == "amq.default" else name

    def text(self, name: str, default: str | None = None) -> str:
        """Return a text of the body. Raises BadQuery."""
        value = self.body.get(name, default)
        if not isinstance(value, str):
            raise BadQuery(f"key_missing: {name}" if value is None else f"{name}: a text is needed")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """Return a truth value of the body, which may be a text. Raises BadQuery."""
        value = self.body.get(name, default)
        if not isinstance(value, bool | str) or value not in _BOOLEANS:
            raise BadQuery(f"{name}: true or false is needed")
        return _BOOLEANS[value]

    def asked(self, name: str) -> bool:
        """Return a truth value of the query. Raises BadQuery."""
        value = self.query.get(name, "false")
        if value not in _BOOLEANS:
            raise BadQuery(f"{name}: true or false is needed")
        return _BOOLEANS[value]

    def number(self, name: str, default: int | None = None) -> int:
        """Return a number of the body, which may be a text. Raises BadQuery."""
        value = self.body.get(name, default)
        if isinstance(value, str) and value.isascii() and value.removeprefix("-").isdigit() and len(value) < 19:
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise BadQuery(f"key_missing: {name}" if value is None else f"{name}: a number is needed")
        return value

    def table(self, name: str) -> Mapping[str, Any]:
        """Return an object of the body; an empty array counts as one, since some tools cannot tell them apart. Raises
        BadQuery.
        """
        value = self.body.get(name)
        if value in (None, [], ""):
            return {}
        if not isinstance(value, dict):
            raise BadQuery(f"{name}: an object is needed")
        return value


class WriteRoute(NamedTuple):
    """The handler of a change, and the tags of which a user needs one."""

    change: Callable[[Writing], Awaitable[ChangeAnswer]]
    tags: frozenset[str] = MANAGEMENT
    longest: int = LONGEST_BODY
    """Bytes of a body."""


def parsed(body: bytes) -> Any:
    """Return the JSON in a body; an empty one is an empty object. Raises BadQuery, also for numbers and halves of
    surrogate pairs that Python would read, but that no answer could show and no other client could use.
    """
    if not body.strip():
        return {}
    try:
        value = json.loads(body)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):  # also for bytes that are no UTF-8
        raise BadQuery("the body is not valid JSON") from None
    if is_nested(value):
        raise BadQuery(NESTED)
    return value


def made(new: object) -> ChangeAnswer:
    """Return the answer to a PUT."""
    return CREATED if new else DONE


def missing_unless(found: bool) -> None:
    """Raises NothingThere unless something was found."""
    if not found:
        raise NothingThere
