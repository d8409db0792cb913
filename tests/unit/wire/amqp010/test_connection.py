"""The connection: heartbeats, the end by either side, limits, lists, and bytes that are anything."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.wire.amqp010.codec.frames import FRAME_HEAD, PROTOCOL_HEADER
from escrowmq.wire.amqp010.codec.spec import (
    CloseCode,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionHeartbeat,
    ExecutionSync,
    SessionCompleted,
    SessionDetach,
)
from escrowmq.wire.amqp010.connection import Connection
from tests.unit.wire.amqp010.clients import Client, server


def test_the_client_closes_the_connection() -> None:
    client = Client()
    client.control(ConnectionClose(CloseCode.NORMAL), 0)
    client.expect(ConnectionCloseOk)
    assert client.port.closed
    assert not client.server.broker.engine.channels


def test_the_broker_closes_the_connection() -> None:
    client = Client()
    client.port.endpoint.shut("the broker stops")
    client.server.end_turn()
    client.collect()
    close = client.expect(ConnectionClose)
    assert (close.reply_code, close.reply_text) == (CloseCode.CONNECTION_FORCED, "the broker stops")
    assert not client.server.faults
    assert not client.port.closed
    client.control(ConnectionCloseOk(), 0)
    assert client.port.closed


def test_a_client_that_does_not_answer_a_close_is_given_up() -> None:
    client = Client()
    client.port.endpoint.shut("the broker stops")
    for now in (1_000, 6_000, 6_001):
        client.port.endpoint.tick(now, 0, 0)
        client.server.end_turn()
        assert client.port.closed is (now == 6_001)


def test_what_follows_a_close_of_the_broker_is_ignored() -> None:
    client = Client()
    client.port.endpoint.shut("the broker stops")
    client.send_bytes(client.octets(ExecutionSync()) + client.control_octets(SessionDetach(b"session 1")))
    client.expect(ConnectionClose)
    assert client.idle()


def test_heartbeats_are_sent_when_either_side_is_silent() -> None:
    client = Client(attaches=False, opens=False)
    client.log_in()
    client.tune(heartbeat=10)
    client.open()
    for idle_in, idle_out, sent in [(4_999, 4_999, 0), (0, 5_000, 1), (5_000, 0, 1), (20_000, 0, 1)]:
        client.port.endpoint.tick(0, idle_in, idle_out)
        client.server.end_turn()
        client.collect()
        assert [each.operation for each in client.inbox] == [ConnectionHeartbeat()] * sent
        client.inbox.clear()
    client.port.endpoint.tick(0, 20_001, 0)
    client.server.end_turn()
    assert client.port.closed


def test_a_client_without_heartbeats_is_never_given_up() -> None:
    client = Client()
    client.port.endpoint.tick(0, 10_000_000, 10_000_000)
    client.server.end_turn()
    client.collect()
    assert client.idle()
    assert not client.port.closed


def test_a_heartbeat_of_the_client_has_no_answer() -> None:
    client = Client()
    client.control(ConnectionHeartbeat(), 0)
    assert client.idle()


def test_a_lost_connection_gives_its_sessions_back() -> None:
    client = Client()
    client.attach(2)
    assert client.server.broker.engine.channels["guest"] == 2
    client.server.lose(client.port)
    client.server.end_turn()
    assert not client.server.broker.engine.channels
    Client(client.server).attach(2)  # the names are free


def test_the_connection_is_listed() -> None:
    client = Client()
    entry = client.port.endpoint.describe()
    assert entry["protocol"] == "AMQP 0-10"
    assert (entry["user"], entry["vhost"], entry["state"], entry["channels"]) == ("guest", "/", "running", 1)
    (row,) = client.port.endpoint.channel_rows()
    assert (row["number"], row["state"], row["transactional"], row["unsettled"]) == (1, "running", False, 0)


def test_a_client_that_does_not_read_is_not_read() -> None:
    client = Client(server(outbox=1000))
    endpoint = client.port.endpoint
    endpoint.congested(4_001)
    client.send_bytes(client.octets(ExecutionSync()) * 3)
    client.expect(SessionCompleted)  # of the first one, before the size was looked at
    assert client.idle()
    assert endpoint.unread
    endpoint.congested(0)
    client.server.end_turn()
    client.collect()
    assert client.expect(SessionCompleted).commands == ((1, 2),)


@pytest.mark.parametrize(
    "frame",
    [
        FRAME_HEAD.pack(0x4F, 0, 12, 0, 0),
        FRAME_HEAD.pack(15, 0, 11, 0, 0),
        FRAME_HEAD.pack(15, 4, 12, 1, 1),
        FRAME_HEAD.pack(15, 1, 12, 0, 1),
        FRAME_HEAD.pack(15, 0, 12, 1, 1),
        FRAME_HEAD.pack(15, 0, 12, 0, 1),
        FRAME_HEAD.pack(15, 1, 12, 1, 1),
        FRAME_HEAD.pack(15, 2, 12, 1, 1),
        FRAME_HEAD.pack(13, 0, 12, 0, 1),
        FRAME_HEAD.pack(15, 1, 18, 1, 1) + b"\x08\x02\x01\x00\xff\xff",
    ],
)
def test_a_malformed_frame_costs_the_connection(frame: bytes) -> None:
    client = Client()
    client.send_bytes(frame)
    assert client.expect(ConnectionClose).reply_code == CloseCode.FRAMING_ERROR
    assert client.server.faults
    client.control(ConnectionCloseOk(), 0)
    assert client.port.closed


def test_a_frame_above_the_agreed_size_costs_the_connection() -> None:
    client = Client(opens=False)
    client.log_in()
    client.tune(max_frame_size=4096)
    client.open()
    client.send_bytes(FRAME_HEAD.pack(15, 0, 4097, 0, 0))
    assert client.expect(ConnectionClose).reply_code == CloseCode.FRAMING_ERROR


@given(data=st.binary(max_size=200), cut=st.integers(0, 200))
def test_any_bytes_after_the_header_are_answered_or_refused(data: bytes, cut: int) -> None:
    client = Client(opens=False)
    client.send_bytes(PROTOCOL_HEADER + data[:cut])
    client.send_bytes(data[cut:])


@given(kind=st.integers(0, 3), flags=st.integers(0, 15), channel=st.integers(0, 2), payload=st.binary(max_size=80))
def test_any_frame_of_a_client_is_answered_or_refused(kind: int, flags: int, channel: int, payload: bytes) -> None:
    client = Client()
    client.send_bytes(FRAME_HEAD.pack(flags, kind, len(payload) + 12, kind != 0, channel) + payload)
    other = Client(client.server, attaches=False)
    other.attach(1, b"another")


def test_input_in_single_bytes_is_the_same() -> None:
    client = Client(opens=False)
    endpoint: Connection = client.port.endpoint
    client.log_in()
    client.tune()
    client.open()
    octets = client.control_octets(ConnectionClose(CloseCode.NORMAL), 0)
    for at in range(len(octets)):
        assert not client.port.closed
        client.send_bytes(octets[at : at + 1])
    client.expect(ConnectionCloseOk)
    assert endpoint.finished
