"""The pure endpoint: login, open, close, violations, heartbeats, and life over several connections."""

from __future__ import annotations

import pytest

from escrowmq.amqp10.endpoint.connection import ConnectionState, Endpoint
from escrowmq.amqp10.endpoint.events import Ended, Opened
from escrowmq.amqp10.errors import ConnectionLost, ConnectionRefused, LoginRefused, ProtocolViolation
from escrowmq.amqp10.parameters import Parameters
from escrowmq.wire.amqp10.codec import frames
from escrowmq.wire.amqp10.codec.performatives import Begin, Close, Error, Flow, Open
from escrowmq.wire.amqp10.codec.types import Symbol
from tests.harness.amqp10_peer import Peer, connected, reconnected


def test_a_connection_opens_and_begins_its_sessions() -> None:
    endpoint, peer, session = connected()
    assert endpoint.state is ConnectionState.OPEN
    assert [type(performative) for performative, _ in peer.sent] != []
    opened = peer.last(Open)
    assert (opened.container_id, opened.hostname, opened.idle_time_out) == ("me", "127.0.0.1", 30000)
    assert isinstance(peer.last(Begin), Begin)
    assert Opened("peer") in peer.events
    assert session.window == 1000


def test_every_input_may_come_byte_by_byte() -> None:
    endpoint = Endpoint("me")
    peer = Peer(endpoint)
    endpoint.start(Parameters(mechanism="NONE"))
    data = frames.PROTOCOL_HEADER + frames.frame(0, b"\x00\x53\x10\xc0\x07\x01\xa1\x04peer")
    for number in range(len(data)):
        peer.octets(data[number : number + 1])
    assert endpoint.state is ConnectionState.OPEN
    assert peer.read()[0].container_id == "me"


def test_the_peers_close_is_answered_and_its_reason_is_kept() -> None:
    endpoint, peer, _ = connected()
    peer.send(Close(Error(condition=Symbol("amqp:connection:forced"), description="shutdown")))
    assert endpoint.state is ConnectionState.ENDED
    assert isinstance(endpoint.error, ConnectionLost)
    assert "amqp:connection:forced: shutdown" in str(endpoint.error)
    assert peer.last(Close).error is None


def test_close_waits_for_the_peers_close() -> None:
    endpoint, peer, session = connected()
    endpoint.close()
    assert peer.last(Close).error is None
    peer.send(Flow(incoming_window=1, next_outgoing_id=0, outgoing_window=1))  # is ignored
    assert endpoint.state is ConnectionState.CLOSING
    assert Ended(None) in peer.send(Close())
    assert endpoint.error is None
    assert session.state.value == "gone"


@pytest.mark.parametrize(
    ("answer", "advice"),
    [
        (frames.PROTOCOL_HEADER, "use the mechanism NONE"),
        (frames.TLS_HEADER, "use amqps://"),
        (b"AMQP\x00\x00\x09\x01", "does not speak AMQP 1.0"),
    ],
)
def test_another_protocol_header_is_explained(answer: bytes, advice: str) -> None:
    endpoint = Endpoint("me")
    endpoint.start(Parameters())
    endpoint.receive(answer)
    assert isinstance(endpoint.error, LoginRefused)
    assert advice in str(endpoint.error)


@pytest.mark.parametrize(
    "octets",
    [
        frames.frame(0, b"\x00\x53\x14\x45"),  # a transfer without its fields
        frames.frame(7, b"\x00\x53\x17\x45"),  # an end on an unknown channel
        b"\x00\x00\x00\x01\x02\x00\x00\x00",  # a frame shorter than its header
        frames.frame(0, b"\x00\x53\x10\xc0\x07\x01\xa1\x04peer"),  # a second open
    ],
)
def test_a_violation_closes_the_connection_with_its_reason(octets: bytes) -> None:
    endpoint, peer, _ = connected()
    peer.octets(octets)
    assert isinstance(endpoint.error, ProtocolViolation)
    assert str(peer.last(Close).error.condition) == "amqp:framing-error"


def test_heartbeats_are_sent_at_half_of_the_peers_time() -> None:
    endpoint, peer, _ = connected(idle_time_out=10_000)
    endpoint.output()
    assert endpoint.tick(100.0) == 2.5
    endpoint.tick(104.0)
    assert endpoint.output() == b""
    endpoint.tick(105.0)
    assert endpoint.output() == frames.EMPTY_FRAME
    assert peer.endpoint.state is ConnectionState.OPEN


def test_a_silent_peer_is_lost() -> None:
    endpoint, _, _ = connected()
    endpoint.tick(100.0)
    endpoint.tick(160.0)
    assert endpoint.state is ConnectionState.OPEN
    endpoint.tick(160.1)
    assert "sent nothing for 60 s" in str(endpoint.error)


def test_sessions_begin_again_on_the_next_connection() -> None:
    _, peer, session = connected()
    assert session.state.value == "mapped"
    again = reconnected(peer)
    assert session.state.value == "mapped"
    assert len(again.all(Begin)) == 1


def refused(condition: str) -> tuple[Endpoint, Peer]:
    """Return an endpoint whose open was answered with an open that announces a refusal, and a close."""
    endpoint = Endpoint("me")
    peer = Peer(endpoint)
    endpoint.start(Parameters(mechanism="NONE", virtual_host="nope"))
    endpoint.session()
    peer.octets(frames.PROTOCOL_HEADER)
    peer.send(Open("peer", properties={Symbol("amqp:connection-establishment-failed"): True}))
    assert endpoint.state is ConnectionState.OPENING
    peer.send(Close(Error(condition=Symbol(condition), description="no vhost 'nope'")))
    return endpoint, peer


def test_a_connection_that_the_peer_refuses_never_opens() -> None:
    endpoint, peer = refused("amqp:not-allowed")
    assert type(endpoint.error) is ConnectionRefused
    assert str(endpoint.error) == "127.0.0.1:5672 refused the connection: amqp:not-allowed: no vhost 'nope'"
    assert endpoint.error.condition == "amqp:not-allowed"
    assert endpoint.state is ConnectionState.ENDED
    assert peer.all(Begin) == []
    assert peer.last(Close).error is None


def test_a_peer_that_shuts_down_during_the_open_refuses_nothing() -> None:
    endpoint, _ = refused("amqp:connection:forced")
    assert type(endpoint.error) is ConnectionLost
