"""Requests of the broker's own to which a client responds."""

from __future__ import annotations

from escrowmq.wire.rocketmq.remoting.codes import Code
from escrowmq.wire.rocketmq.remoting.frames import RESPONSE, Command, encode
from escrowmq.wire.rocketmq.remoting.questions import MOST, PATIENCE_MS
from tests.unit.wire.rocketmq.remoting.clients import Client, server


def ask(client: Client, found: list[Command | None]) -> None:
    client.port.endpoint.ask(Code.RUNNING_INFO, {}, b"", found.append)
    client.server.end_turn()


def test_the_response_is_given_to_the_one_that_asked_once() -> None:
    client, found = Client(server()), list[Command | None]()
    ask(client, found)
    (request,) = client.requests(Code.RUNNING_INFO)
    for _ in range(2):
        client.server.receive(client.port, encode(Command(7, {}, b"answer", request.opaque, RESPONSE)))
    assert [each.body for each in found if each is not None] == [b"answer"]


def test_without_a_response_in_time_there_is_none() -> None:
    client, found = Client(server()), list[Command | None]()
    ask(client, found)
    client.server.now += PATIENCE_MS - 1
    client.server.end_turn()
    assert found == []
    client.server.now += 1
    client.server.end_turn()
    assert found == [None]


def test_a_client_that_is_gone_gives_no_response() -> None:
    client, found = Client(server()), list[Command | None]()
    ask(client, found)
    client.lose()
    assert found == [None]


def test_too_many_requests_are_not_sent() -> None:
    client, found = Client(server()), list[Command | None]()
    for _ in range(MOST + 1):
        ask(client, found)
    assert found == [None]
    assert len(client.requests(Code.RUNNING_INFO)) == MOST
