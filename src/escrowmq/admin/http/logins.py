"""Who asks: HTTP basic authentication against the users of the broker."""

from __future__ import annotations

import base64
from typing import Final, NamedTuple

from starlette.requests import Request

from escrowmq.admin.http.broker import AskedBroker

ADMINISTRATOR: Final = "administrator"
MONITORING: Final = "monitoring"
_LONGEST: Final = 4096  # bytes of an Authorization header


class NotAuthorised(Exception):  # noqa: N818 - named for what happened
    """The request shows no valid login, or its user lacks a tag. Both are answered with 401, as in RabbitMQ."""


class Operator(NamedTuple):
    """A user that has logged in."""

    user: str
    tags: tuple[str, ...]


async def login_of(request: Request, broker: AskedBroker) -> Operator:
    """Return the user of a request. Raises NotAuthorised, BrokerUnavailable."""
    user, password = _credentials(request.headers.get("authorization", ""))
    host, port = request.client or ("", 0)
    found = await broker.ask("user.login", address=host, port=port, user=user, password=password)
    if found["user"] is None:
        raise NotAuthorised("Login failed")
    return Operator(found["user"], tuple(found["tags"]))


async def monitor(request: Request, broker: AskedBroker) -> Operator:
    """Do `login_of` for a request that shows the whole broker: the user needs the tag monitoring or administrator."""
    login = await login_of(request, broker)
    if not {ADMINISTRATOR, MONITORING} & set(login.tags):
        raise NotAuthorised("Not monitor user")
    return login


def _credentials(header: str) -> tuple[str, str]:
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic" or len(header) > _LONGEST:
        raise NotAuthorised("Not authorised")
    try:
        text = base64.b64decode(encoded.strip(), validate=True).decode()
    except ValueError as error:  # no Base64, characters that are not ASCII, or bytes that are not UTF-8
        raise NotAuthorised("Not authorised") from error
    user, colon, password = text.partition(":")
    if not colon:
        raise NotAuthorised("Not authorised")
    return user, password
