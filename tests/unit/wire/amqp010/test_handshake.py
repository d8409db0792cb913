"""Logging in, tuning and opening: each state with each control."""

from __future__ import annotations

import pytest

from escrowmq.wire.amqp010.codec.frames import PROTOCOL_HEADER
from escrowmq.wire.amqp010.codec.spec import (
    CloseCode,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionHeartbeat,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionSecure,
    ConnectionSecureOk,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    SessionAttach,
)
from escrowmq.wire.amqp010.codec.structs import Control
from escrowmq.wire.amqp010.handshake import STEPS, ConnectionState
from escrowmq.wire.scram.client import ClientExchange
from tests.unit.wire.amqp010.clients import Client, server

PLAIN = b"\0guest\0guest"


def test_the_offer_has_mechanisms_and_the_identity_of_the_broker() -> None:
    client = Client(server(federation_tag="tag"), opens=False)
    client.server.mechanisms = ("PLAIN", "AMQPLAIN", "EXTERNAL", "ANONYMOUS")
    client = Client(client.server, opens=False)
    start = client.log_in()
    assert start.mechanisms == ["PLAIN", "ANONYMOUS"]
    assert start.locales == ["en_US"]
    assert start.server_properties is not None
    assert start.server_properties["qpid.federation_tag"] == f"tag/{client.port.endpoint.peer}"
    assert start.server_properties["product"] == "EscrowMQ"


def test_another_header_is_answered_by_ours() -> None:
    client = Client(opens=False)
    client.send_bytes(b"AMQP\x01\x01\x00\x0b")
    assert client.headers == [PROTOCOL_HEADER]
    assert client.port.closed


@pytest.mark.parametrize(("password", "mechanism"), [("wrong", "PLAIN"), ("guest", "AMQPLAIN"), ("guest", "NONE")])
def test_a_refused_login_closes_the_connection_without_a_reason(password: str, mechanism: str) -> None:
    client = Client(opens=False)
    client.log_in(password=password, mechanism=mechanism)
    close = client.expect(ConnectionClose)
    assert close.reply_code == CloseCode.CONNECTION_FORCED
    assert client.port.closed
    assert client.server.verdicts or password == "wrong"


def test_input_waits_while_the_login_is_judged() -> None:
    client = Client(opens=False)
    client.server.slow = True
    client.send_bytes(PROTOCOL_HEADER)
    client.inbox.clear()
    octets = client.control_octets(ConnectionStartOk({}, "PLAIN", PLAIN, "en_US"), 0)
    client.send_bytes(octets + client.control_octets(ConnectionTuneOk(), 0))
    client.send_bytes(client.control_octets(ConnectionOpen("/"), 0))
    assert client.idle()
    client.server.login_done()
    client.collect()
    client.expect(ConnectionTune)
    client.expect(ConnectionOpenOk)
    assert client.server.admissions == [("guest", "/")]


def test_much_input_before_the_verdict_is_refused() -> None:
    client = Client(opens=False)
    client.server.slow = True
    client.log_in()
    client.send_bytes(bytes(16_385))
    assert client.expect(ConnectionClose).reply_code == CloseCode.FRAMING_ERROR
    client.server.login_done()
    assert client.port.closed


def test_a_mechanism_with_several_steps() -> None:
    client = Client(opens=False)
    client.server.mechanisms = ("SCRAM-SHA-256",)
    client = Client(client.server, opens=False)
    exchange = ClientExchange("SCRAM-SHA-256", "guest", "guest", "nonce")
    client.send_bytes(PROTOCOL_HEADER)
    client.inbox.clear()
    client.control(ConnectionStartOk({}, "SCRAM-SHA-256", exchange.first(), "en_US"), 0)
    challenge = client.expect(ConnectionSecure).challenge
    assert challenge is not None
    client.control(ConnectionSecureOk(exchange.final(challenge)), 0)
    final = client.expect(ConnectionSecure).challenge
    assert final is not None
    assert final.startswith(b"v=")
    client.control(ConnectionSecureOk(b""), 0)
    client.tune()
    client.open()


@pytest.mark.parametrize(
    "wanted",
    [{"max_frame_size": 4095}, {"max_frame_size": 50_001}, {"channel_max": 21}],
)
def test_limits_outside_the_offer_are_refused(wanted: dict[str, int]) -> None:
    client = Client(server(frame_max=50_000, channels=20), opens=False)
    client.log_in()
    tune = client.tune(**wanted)
    assert (tune.channel_max, tune.max_frame_size, tune.heartbeat_max) == (20, 50_000, 60)
    assert client.expect(ConnectionClose).reply_code == CloseCode.FRAMING_ERROR
    assert client.port.closed


def test_absent_limits_are_those_of_the_broker() -> None:
    client = Client(opens=False)
    client.log_in()
    client.tune(channel_max=None)
    endpoint = client.port.endpoint
    assert (endpoint.frame_max, endpoint.channel_max, endpoint.heartbeat) == (65_535, 2047, 0)


def test_a_channel_above_the_agreed_number_costs_the_connection() -> None:
    client = Client(opens=False)
    client.log_in()
    client.tune(channel_max=3)
    client.open()
    client.attach(3)
    client.control(SessionAttach(b"s"), 4)
    assert client.expect(ConnectionClose).reply_code == CloseCode.FRAMING_ERROR


@pytest.mark.parametrize(("vhost", "entered"), [("/", True), (None, True), ("", True), ("none", False)])
def test_a_virtual_host_is_entered_by_its_name(vhost: str | None, entered: bool) -> None:
    client = Client(opens=False)
    client.log_in()
    client.tune()
    client.control(ConnectionOpen(vhost), 0)
    if entered:
        assert client.expect(ConnectionOpenOk).known_hosts == []
    else:
        assert client.expect(ConnectionClose).reply_code == CloseCode.INVALID_PATH


def test_the_name_of_the_process_is_part_of_the_label() -> None:
    client = Client(opens=False)
    client.send_bytes(PROTOCOL_HEADER)
    client.control(ConnectionStartOk({"qpid.client_process": "tool"}, "PLAIN", PLAIN, "en_US"), 0)
    assert client.port.endpoint.label.endswith("(tool)")


def reached(state: ConnectionState) -> Client:
    """Return a client whose connection is in `state`."""
    client = Client(opens=False)
    if state is ConnectionState.SECURE:
        client.server.mechanisms = ("SCRAM-SHA-256",)
        client = Client(client.server, opens=False)
        client.send_bytes(PROTOCOL_HEADER)
        client.control(ConnectionStartOk({}, "SCRAM-SHA-256", b"", "en_US"), 0)
    else:
        client.send_bytes(PROTOCOL_HEADER)
    if state in (ConnectionState.TUNE, ConnectionState.OPEN, ConnectionState.RUNNING):
        client.control(ConnectionStartOk({}, "PLAIN", PLAIN, "en_US"), 0)
    if state in (ConnectionState.OPEN, ConnectionState.RUNNING):
        client.control(ConnectionTuneOk(), 0)
    if state is ConnectionState.RUNNING:
        client.control(ConnectionOpen("/"), 0)
    client.inbox.clear()
    assert client.port.endpoint.state is state
    return client


CONTROLS: list[Control] = [
    ConnectionStartOk({}, "PLAIN", PLAIN, "en_US"),
    ConnectionSecureOk(b"n,,n=guest,r=nonce"),
    ConnectionTuneOk(),
    ConnectionOpen("/"),
    ConnectionClose(CloseCode.NORMAL),
    ConnectionHeartbeat(),
    ConnectionTune(),
    ConnectionCloseOk(),
    SessionAttach(b"s"),
]
STATES = [
    ConnectionState.START,
    ConnectionState.SECURE,
    ConnectionState.TUNE,
    ConnectionState.OPEN,
    ConnectionState.RUNNING,
]


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: control.NAME)
@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
def test_a_control_is_valid_in_its_states_only(state: ConnectionState, control: Control) -> None:
    client = reached(state)
    client.control(control, 1 if isinstance(control, SessionAttach) else 0)
    refused = client.inbox and isinstance(client.inbox[0].operation, ConnectionClose)
    valid = type(control) in STEPS[state] or (isinstance(control, SessionAttach) and state is ConnectionState.RUNNING)
    assert bool(refused) is not valid
