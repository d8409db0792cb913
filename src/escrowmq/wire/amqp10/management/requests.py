"""Requests to the management node and their responses, as messages (HTTP semantics over AMQP, working draft 06).

A request has the method as its subject, the target as its `to`, and a value or nothing as its body. The response has
the status code as its subject, and the message-id of the request as its correlation-id. A client that adds `paired` to
its links asks for responses on the link of the same name, and sends `$me` as `reply-to`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias
from urllib.parse import parse_qsl, unquote

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.wire.amqp10.codec import sections
from escrowmq.wire.amqp10.codec.composite import encode_composite, resolve
from escrowmq.wire.amqp10.codec.encoding import decode
from escrowmq.wire.amqp10.codec.errors import CodecError
from escrowmq.wire.amqp10.codec.sections import APPLICATION_PROPERTIES, DATA, VALUE, Header, Properties
from escrowmq.wire.amqp10.codec.types import Described, Symbol, ULong, Uuid, Value
from escrowmq.wire.amqp10.errors import DECODE_ERROR, INVALID_FIELD, link_fault

if TYPE_CHECKING:
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.topology.vhost import VirtualHost
    from escrowmq.wire.amqp10.connection import Connection

Identifier: TypeAlias = "int | Uuid | bytes | str"
_VERSION: Final = sections.encode_section(APPLICATION_PROPERTIES, {"http:response": "1.1"})
_BODY: Final = frozenset((VALUE, DATA, "amqp:amqp-value:*", "amqp:data:binary"))
_LONGEST_TEXT: Final = 1000  # characters of a problem

STATUS: Final[Mapping[Condition, int]] = {
    Condition.NOT_FOUND: 404,
    Condition.ACCESS_REFUSED: 403,
    Condition.RESOURCE_LOCKED: 400,
    Condition.PRECONDITION_FAILED: 400,
    Condition.INVALID_ARGUMENT: 400,
    Condition.NOT_ALLOWED: 403,
    Condition.NOT_IMPLEMENTED: 400,
    Condition.ILLEGAL_STATE: 400,
    Condition.COMMAND_INVALID: 400,
    Condition.LIMIT_EXCEEDED: 503,
    Condition.UNAVAILABLE: 503,
    Condition.INTERNAL: 500,
}
"""The status code for each refusal of the core, as RabbitMQ chooses them."""


class Problem(Exception):  # noqa: N818 - it is an answer to the client
    """A request that is answered with the status code `code` of an error, and the explanation `text`."""

    __slots__ = ("code", "text")

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code
        self.text = text


class ManagementRequest(NamedTuple):
    """A request. The segments of the path are percent-encoded still; the query is decoded."""

    connection: Connection
    ident: Identifier
    method: str
    path: tuple[str, ...]
    query: Mapping[str, str]
    body: Value

    @property
    def vhost(self) -> VirtualHost[Queue]:
        """The virtual host of the connection."""
        return self.connection.vhost

    def name(self) -> str:
        """Return the name in the second segment of the path. Raises Problem."""
        return decoded(self.path[1])


class Response(NamedTuple):
    """The answer to a request. It is sent when the log is synced up to `after`."""

    code: int
    body: Value = None
    after: int = 0


class AwaitedResponse(NamedTuple):
    """A response that depends on the server. `begin` is called with what sends it, now or in a later turn."""

    begin: Callable[[Callable[[Response], None]], None]


Answer: TypeAlias = "Response | AwaitedResponse | Iterator[Response | None]"
"""A response, now or later, or a task that yields None between its pieces, and its response at the end."""


def read(connection: Connection, message: bytes) -> ManagementRequest:
    """Return the request in `message`. Raises AmqpFault if it cannot be answered."""
    try:
        properties, body = _parts_of(message)
    except CodecError as error:
        raise link_fault(DECODE_ERROR, str(error)) from None
    if properties.message_id is None:
        raise link_fault(INVALID_FIELD, "a request needs a message-id, by which its response is found")
    path, _, query = (properties.to or "").partition("?")
    return ManagementRequest(
        connection,
        properties.message_id,
        properties.subject or "",
        tuple(path.split("/")[1:]),
        dict(parse_qsl(query, keep_blank_values=True, errors="replace")),
        body,
    )


def _parts_of(message: bytes) -> tuple[Properties, Value]:
    """Return the properties and the body of a message, whose sections may be in any order: RabbitMQ's Python client
    sends an empty body before the properties. Raises CodecError.
    """
    properties, body, at = Properties(), None, 0
    while at < len(message):
        section, at = decode(message, at)
        found = resolve(section)
        if isinstance(found, Header):
            continue
        if isinstance(found, Properties):
            properties = found
        elif not isinstance(found, Described) or not isinstance(found.descriptor, ULong | Symbol):
            raise CodecError("a section of a message has no descriptor")
        elif found.descriptor in _BODY:
            body = found.value
    return properties, body


def encode(ident: Identifier, response: Response) -> bytes:
    """Return the message that answers the request `ident`. Raises CodecError if the body has no encoding."""
    properties = Properties(subject=str(response.code), correlation_id=ident)  # type: ignore[arg-type]
    return encode_composite(properties) + _VERSION + sections.encode_section(VALUE, response.body)


def problem(error: BrokerError) -> Problem:
    """Return a refusal of the core as a problem."""
    return Problem(STATUS[error.condition], error.text)


def refused(found: Problem) -> Response:
    """Return the response to a request that is refused."""
    return Response(found.code, found.text.encode("utf-8", "replace").decode()[:_LONGEST_TEXT])


def decoded(segment: str) -> str:
    """Return a percent-encoded part of a path. Raises Problem if that is malformed."""
    try:
        return unquote(segment, errors="strict")
    except UnicodeDecodeError:
        raise Problem(400, f"'{segment}' is not the percent-encoding of UTF-8") from None
