"""Who asks: HTTP basic authentication against the users of the broker, or a bearer token (RFC 6750)."""

from __future__ import annotations

import base64
from typing import Final, NamedTuple

from starlette.requests import Request

from escrowmq.admin.http.broker import AskedBroker
from escrowmq.core.access.grant import Grant

ADMINISTRATOR: Final = "administrator"
MONITORING: Final = "monitoring"
_BEARER: Final = "bearer "
_LONGEST: Final = 4096  # bytes of an Authorization header with a password
_LONGEST_TOKEN: Final = 16_384


class NotAuthorised(Exception):  # noqa: N818 - named for what happened
    """The request shows no valid login, or its user lacks a tag. Both are answered with 401, as in RabbitMQ."""


class Operator(NamedTuple):
    """A user that has logged in. `grant` has the rights from its token; None if it has shown a password."""

    user: str
    tags: tuple[str, ...]
    grant: Grant | None = None

    @property
    def asking(self) -> dict[str, object]:
        """The arguments of an operation that say who asks for it."""
        return {"by": self.user} | ({"scopes": self.grant.scopes} if self.grant is not None else {})


async def operator_of_token(broker: AskedBroker, host: str, port: int, token: str) -> Operator | None:
    """Return the user of a bearer token that came from this address; None if it is refused."""
    found = await broker.ask("token.login", address=host, port=port, token=token)
    if found["user"] is None:
        return None
    grant = Grant(found["user"], found["scopes"], found["expires_ms"])
    return Operator(found["user"], tuple(found["tags"]), grant)


async def operator_of_password(broker: AskedBroker, host: str, port: int, user: str, password: str) -> Operator | None:
    """Return a user that shows a password; None if it is refused."""
    found = await broker.ask("user.login", address=host, port=port, user=user, password=password)
    return None if found["user"] is None else Operator(found["user"], tuple(found["tags"]))


async def login_of(request: Request, broker: AskedBroker) -> Operator:
    """Return the user of a request. Raises NotAuthorised, BrokerUnavailable."""
    header = request.headers.get("authorization", "")
    host, port = request.client or ("", 0)
    if header[: len(_BEARER)].lower() == _BEARER:
        operator = await operator_of_token(broker, host, port, _token(header))
    else:
        operator = await operator_of_password(broker, host, port, *_credentials(header))
    if operator is None:
        raise NotAuthorised("Login failed")
    return operator


async def monitor(request: Request, broker: AskedBroker) -> Operator:
    """Do `login_of` for a request that shows the whole broker: the user needs the tag monitoring or administrator."""
    login = await login_of(request, broker)
    if not {ADMINISTRATOR, MONITORING} & set(login.tags):
        raise NotAuthorised("Not monitor user")
    return login


def _token(header: str) -> str:
    token = header[len(_BEARER) :].strip()
    if not token or len(header) > _LONGEST_TOKEN:
        raise NotAuthorised("Not authorised")
    return token


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
