"""Protocol headers, SASL, Open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from escrowmq.wire.amqp10.codec.frames import PROTOCOL_HEADER, SASL, SASL_HEADER, TLS_HEADER, frame
from escrowmq.wire.amqp10.codec.performatives import Begin, Close, Open, encode_performative
from escrowmq.wire.amqp10.codec.sasl import (
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
)
from escrowmq.wire.amqp10.codec.types import Symbol
from escrowmq.wire.amqp10.errors import CONNECTION_FORCED, FRAMING_ERROR, INVALID_FIELD, NOT_ALLOWED
from escrowmq.wire.amqp10.handshake import CAPABILITIES, NODE, SOLE, ConnectionState
from escrowmq.wire.endpoint import Endpoint, Verdict
from escrowmq.wire.sasl import Credentials
from escrowmq.wire.scram.client import ClientExchange
from tests.harness.server import Options
from tests.unit.wire.amqp10.clients import Client, Server, server


def state(client: Client) -> ConnectionState:
    return client.port.endpoint.state


def test_sasl_offers_the_mechanisms_of_the_server() -> None:
    client = Client(server(), opens=False)
    client.headers(SASL_HEADER)
    assert client.expect(SaslMechanisms).sasl_server_mechanisms == ("PLAIN",)


def test_a_login_is_followed_by_open() -> None:
    made = server()
    client = Client(made, opens=False)
    client.log_in()
    client.send(0, Open("mine", hostname="some.host.name"))
    opened = client.expect(Open)
    assert (opened.container_id, opened.channel_max) == ("escrowmq", made.limits.channels - 1)
    assert opened.max_frame_size == made.limits.frame_max
    assert opened.idle_time_out == made.limits.heartbeat * 1000
    assert set(opened.offered_capabilities) == set(CAPABILITIES)
    assert opened.properties is not None
    assert opened.properties["product"] == "EscrowMQ"
    assert made.admissions == [("guest", "/")]


def test_the_broker_may_give_the_name_and_version_that_clients_of_rabbitmq_demand() -> None:
    client = Client(server(rabbitmq_version="4.2.0"), opens=False)
    client.log_in()
    client.send(0, Open("mine"))
    properties = client.expect(Open).properties
    assert properties is not None
    assert (properties["product"], properties["version"], properties["node"]) == ("RabbitMQ", "4.2.0", NODE)
    assert "EscrowMQ" in properties["platform"]


def test_everything_may_be_sent_at_once() -> None:
    client = Client(server(), opens=False)
    init = frame(0, encode_performative(SaslInit(Symbol("PLAIN"), b"\0guest\0guest")), type=SASL)
    client.send_bytes(SASL_HEADER + init + PROTOCOL_HEADER + frame(0, encode_performative(Open("c"))))
    assert client.raw == SASL_HEADER
    assert state(client) is ConnectionState.RUNNING


def test_input_waits_while_the_password_is_checked() -> None:
    made = server()
    made.slow = True
    client = Client(made, opens=False)
    init = frame(0, encode_performative(SaslInit(Symbol("PLAIN"), b"\0guest\0guest")), type=SASL)
    client.send_bytes(SASL_HEADER + init)
    client.send_bytes(PROTOCOL_HEADER + frame(0, encode_performative(Open("c"))))
    assert state(client) is ConnectionState.AUTHENTICATING
    made.login_done()
    assert state(client) is ConnectionState.RUNNING


@pytest.mark.parametrize("response", [b"\0guest\0wrong", b"\0nobody\0nobody", b"rubbish", None])
def test_a_refused_login_gets_an_outcome(response: bytes | None) -> None:
    client = Client(server(), opens=False)
    client.headers(SASL_HEADER)
    client.expect(SaslMechanisms)
    client.send_bytes(frame(0, encode_performative(SaslInit(Symbol("PLAIN"), response)), type=SASL))
    assert client.expect(SaslOutcome).code == 1
    assert client.port.closed


def test_a_mechanism_that_is_not_on_offer_is_refused() -> None:
    client = Client(server(), opens=False)
    client.headers(SASL_HEADER)
    client.expect(SaslMechanisms)
    client.send_bytes(frame(0, encode_performative(SaslInit(Symbol("ANONYMOUS"), b"")), type=SASL))
    assert client.expect(SaslOutcome).code == 1


@pytest.mark.parametrize("header", [PROTOCOL_HEADER, TLS_HEADER, b"AMQP\x00\x01\x01\x00"])
def test_another_header_is_answered_with_that_of_sasl(header: bytes) -> None:
    client = Client(server(), opens=False)
    client.send_bytes(header)
    assert client.raw == SASL_HEADER
    assert client.port.closed


class Scram:
    """A client's side of a login by SCRAM, on a server that offers only that."""

    def __init__(self, password: str = "guest", *, slow: bool = False) -> None:
        made = server()
        made.mechanisms = ("SCRAM-SHA-256",)
        made.slow = slow
        self.server = made
        self.exchange = ClientExchange("SCRAM-SHA-256", "guest", password, "abc")
        self.client = Client(made, opens=False)
        self.client.headers(SASL_HEADER)
        assert self.client.expect(SaslMechanisms).sasl_server_mechanisms == ("SCRAM-SHA-256",)

    def say(self, performative: Any) -> None:
        self.client.send_bytes(frame(0, encode_performative(performative), type=SASL))

    def begin(self) -> bytes:
        """Send the initial response; return the challenge."""
        self.say(SaslInit(Symbol("SCRAM-SHA-256"), self.exchange.first()))
        return self.client.expect(SaslChallenge).challenge


def test_scram_needs_a_challenge_and_the_outcome_has_the_signature() -> None:
    login = Scram()
    login.say(SaslResponse(login.exchange.final(login.begin())))
    outcome = login.client.expect(SaslOutcome)
    assert outcome.code == 0
    login.exchange.verify(outcome.additional_data or b"")
    login.client.headers(PROTOCOL_HEADER)
    login.client.send(0, Open("c"))
    login.client.expect(Open)


def test_a_client_may_send_its_first_message_as_a_response() -> None:
    login = Scram()
    login.say(SaslInit(Symbol("SCRAM-SHA-256")))
    assert login.client.expect(SaslChallenge).challenge == b""
    login.say(SaslResponse(login.exchange.first()))
    login.say(SaslResponse(login.exchange.final(login.client.expect(SaslChallenge).challenge)))
    assert login.client.expect(SaslOutcome).code == 0


def test_input_waits_while_a_proof_is_judged() -> None:
    login = Scram(slow=True)
    login.say(SaslResponse(login.exchange.final(login.begin())))
    login.client.send_bytes(PROTOCOL_HEADER + frame(0, encode_performative(Open("c"))))
    assert state(login.client) is ConnectionState.AUTHENTICATING
    login.server.login_done()
    assert state(login.client) is ConnectionState.RUNNING


def test_a_wrong_proof_is_refused_without_a_signature() -> None:
    login = Scram("wrong")
    login.say(SaslResponse(login.exchange.final(login.begin())))
    outcome = login.client.expect(SaslOutcome)
    assert (outcome.code, outcome.additional_data) == (1, None)
    assert login.client.port.closed


@pytest.mark.parametrize("response", [b"", b"rubbish", b"c=biws,r=other,p=AAAA", b"n,,n=guest,r=abc"])
def test_a_malformed_response_to_a_challenge_is_refused(response: bytes) -> None:
    login = Scram()
    login.begin()
    login.say(SaslResponse(response))
    assert login.client.expect(SaslOutcome).code == 1
    assert login.client.port.closed


def test_a_frame_that_is_out_of_order_closes_the_connection() -> None:
    unchallenged, challenged = Scram(), Scram()
    unchallenged.say(SaslResponse(b"n,,n=guest,r=abc"))
    challenged.begin()
    challenged.say(SaslInit(Symbol("SCRAM-SHA-256"), challenged.exchange.first()))
    for login in (unchallenged, challenged):
        assert login.client.port.closed
        assert login.server.admissions == []


class Hospitable(Server):
    """A server that lets everybody in as the user `anonymous`."""

    mechanisms = ("PLAIN", "ANONYMOUS")

    def authenticate(self, endpoint: Endpoint, credentials: Credentials, done: Callable[[Verdict], None]) -> None:
        done(Verdict(credentials.authcid if credentials.mechanism == "ANONYMOUS" else None))


def test_anonymous_clients_need_no_sasl_where_they_are_allowed() -> None:
    client = Client(Hospitable(Options(users=("anonymous",))), opens=False)
    client.headers(PROTOCOL_HEADER)
    client.send(0, Open("c"))
    client.expect(Open)


def test_the_hostname_can_name_a_virtual_host() -> None:
    made = server()
    made.broker.directory.add_vhost("other")
    made.broker.access.set_permission("guest", "other", ".*", ".*", ".*")
    Client(made, hostname="vhost:other")
    assert made.admissions == [("guest", "other")]


def test_without_a_default_virtual_host_the_first_of_the_user_is_entered() -> None:
    made = server()
    made.broker.directory.add_vhost("foreign")
    made.broker.directory.add_vhost("mine")
    made.broker.access.set_permission("guest", "mine", ".*", ".*", ".*")
    made.broker.directory.delete_vhost("/")
    Client(made, hostname="vhost.example.com")
    assert made.admissions == [("guest", "mine")]


def test_an_unknown_virtual_host_is_refused_after_open() -> None:
    client = Client(server(), opens=False)
    client.log_in()
    client.send(0, Open("c", hostname="vhost:nope"))
    client.expect(Open)
    client.closed(NOT_ALLOWED)


@pytest.mark.parametrize(
    ("fields", "condition"), [({"max_frame_size": 511}, INVALID_FIELD), ({"idle_time_out": 999}, NOT_ALLOWED)]
)
def test_impossible_limits_are_refused(fields: dict[str, int], condition: str) -> None:
    client = Client(server(), opens=False)
    client.log_in()
    client.send(0, Open("c", **fields))  # type: ignore[arg-type]
    client.expect(Open)
    client.closed(condition)


def test_open_comes_first() -> None:
    client = Client(server(), opens=False)
    client.log_in()
    client.send(0, Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1))
    client.expect(Open)
    assert client.expect(Close).error is not None
    assert client.port.closed


def test_a_second_open_closes_the_connection() -> None:
    client = Client(server())
    client.send(0, Open("c"))
    assert client.expect(Close).error is not None


def test_sasl_frames_end_with_the_login() -> None:
    client = Client(server())
    client.send_bytes(frame(0, encode_performative(SaslInit(Symbol("PLAIN"), b"")), type=SASL))
    client.closed(FRAMING_ERROR)


def test_many_bytes_before_the_login_are_refused() -> None:
    made = server()
    made.slow = True
    client = Client(made, opens=False)
    init = frame(0, encode_performative(SaslInit(Symbol("PLAIN"), b"\0guest\0guest")), type=SASL)
    client.send_bytes(SASL_HEADER + init)
    client.send_bytes(b"x" * 20_000)
    assert client.port.closed
    assert CONNECTION_FORCED not in str(made.faults)


def test_one_connection_at_a_time_has_a_container_id_that_is_to_be_unique() -> None:
    made = server()
    one = Client(made, container="jms", desired_capabilities=(SOLE,))
    two = Client(made, opens=False)
    two.log_in()
    two.send(0, Open("jms", desired_capabilities=(SOLE,)))
    opened = two.expect(Open)
    assert opened.properties is not None
    assert opened.properties["amqp:connection-establishment-failed"] is True
    close = two.closed(INVALID_FIELD)
    assert close.error is not None
    assert close.error.info == {"invalid-field": "container-id"}
    Client(made, container="jms")  # it does not ask for this
    one.send(0, Close())
    one.expect(Close)
    Client(made, container="jms", desired_capabilities=(SOLE,))
