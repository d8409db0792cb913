"""A client of the management node, for the tests beside this file."""

from __future__ import annotations

from typing import Any, NamedTuple

from escrowmq.wire.amqp10.codec.composite import encode_composite
from escrowmq.wire.amqp10.codec.performatives import RECEIVER, SENDER, SETTLED_MODE, Attach, Flow, Transfer
from escrowmq.wire.amqp10.codec.sections import VALUE, Properties, application_properties, encode_section, properties
from escrowmq.wire.amqp10.codec.sections import body as body_of
from escrowmq.wire.amqp10.codec.termini import Source, Target
from escrowmq.wire.amqp10.codec.types import Described, Symbol
from tests.unit.wire.amqp10.clients import Client, Server, server

REQUESTS, RESPONSES = 20, 21
ADDRESS = "/management"
PAIR = {Symbol("paired"): True}


class Answer(NamedTuple):
    """A response: its status code and its body."""

    code: int
    body: Any


def request_of(
    method: str | None, path: str | None, body: Any = None, ident: Any = "id", reply_to: str | None = "$me"
) -> bytes:
    """Return the message of a request."""
    fields = Properties(message_id=ident, to=path, subject=method, reply_to=reply_to)
    return encode_composite(fields) + encode_section(VALUE, body)


class Manager:
    """A client with a pair of links to the management node."""

    def __init__(
        self,
        made: Server | None = None,
        user: str = "guest",
        *,
        credit: int = 1000,
        container: str = "c",
        **limits: Any,
    ) -> None:
        self.server = made or server(**limits)
        self.client = Client(self.server, user, container)
        self.number = 0
        self.requests()
        self.responses(credit=credit)
        if credit:
            assert self.client.expect(Flow).link_credit == 100

    @property
    def broker(self) -> Any:
        return self.server.broker

    def requests(self, handle: int = REQUESTS, name: str = "pair") -> Attach:
        """Attach the link for requests."""
        source = Source(ADDRESS)
        self.client.send(
            0,
            Attach(
                name,
                handle,
                SENDER,
                SETTLED_MODE,
                source=source,
                target=Target(ADDRESS),
                initial_delivery_count=0,
                properties=PAIR,
            ),
        )
        return self.client.expect(Attach)

    def responses(self, handle: int = RESPONSES, name: str = "pair", credit: int = 0) -> Attach:
        """Attach the link for responses."""
        source, target = Source(ADDRESS), Target(ADDRESS)
        self.client.send(0, Attach(name, handle, RECEIVER, SETTLED_MODE, source=source, target=target, properties=PAIR))
        answer = self.client.expect(Attach)
        if credit:
            self.client.flow(handle, credit)
        return answer

    def send(self, message: bytes, *, settled: bool = True, **fields: Any) -> int:
        """Send a message to the node; return its delivery number."""
        self.number += 1
        self.client.send(0, Transfer(REQUESTS, self.number, b"t", 0, settled, **fields), payload=message)
        return self.number

    def receive(self) -> tuple[Properties, Answer]:
        """Return the next response, with its properties."""
        payload = b""
        while True:
            frame = self.client.expect_message(Transfer)
            assert frame.performative.handle == RESPONSES
            payload += frame.payload
            if not frame.performative.more:
                break
        assert application_properties(payload) == {"http:response": "1.1"}
        found, value = properties(payload), body_of(payload)
        assert isinstance(value, Described)
        assert found.subject is not None
        return found, Answer(int(found.subject), value.value)

    def ask(self, method: str, path: str, body: Any = None, ident: Any = "id") -> Answer:
        """Send a request and return the response."""
        self.send(request_of(method, path, body, ident))
        found, answer = self.receive()
        assert found.correlation_id == ident
        assert type(found.correlation_id) is type(ident)
        return answer

    def code(self, method: str, path: str, body: Any = None) -> int:
        """Send a request and return the status code of the response."""
        return self.ask(method, path, body).code
