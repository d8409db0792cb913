"""Sessions: windows, handles, faults, ends."""

from __future__ import annotations

import pytest

from escrowmq.wire.amqp10.codec.performatives import (
    SENDER,
    Attach,
    Begin,
    Detach,
    Disposition,
    End,
    Flow,
    Transfer,
)
from escrowmq.wire.amqp10.codec.states import Accepted
from escrowmq.wire.amqp10.codec.termini import Source, Target
from escrowmq.wire.amqp10.errors import (
    FRAMING_ERROR,
    HANDLE_IN_USE,
    INVALID_FIELD,
    LIMIT_EXCEEDED,
    NOT_ALLOWED,
    UNATTACHED_HANDLE,
    WINDOW_VIOLATION,
)
from tests.unit.wire.amqp10.clients import ALL, Client, connected, server


def attach(handle: int, name: str = "") -> Attach:
    return Attach(name or f"l{handle}", handle, SENDER, source=Source(), target=Target("q"), initial_delivery_count=0)


def test_a_begin_is_answered_with_the_windows() -> None:
    client = Client(server(session_window=100, links=7), begins=False)
    answer = client.begin(3)
    assert (answer.remote_channel, answer.incoming_window, answer.handle_max) == (3, 100, 6)


def test_a_session_is_ended_and_its_channel_is_free() -> None:
    made, client = connected()
    client.send(0, End())
    assert client.expect(End).error is None
    client.begin(0)
    assert made.broker.engine.channels["guest"] == 1


def test_a_session_has_a_remote_channel_only_as_an_answer() -> None:
    client = Client(server(), begins=False)
    client.send(0, Begin(remote_channel=0, next_outgoing_id=0, incoming_window=1, outgoing_window=1))
    client.closed(NOT_ALLOWED)


def test_a_channel_above_channel_max_closes_the_connection() -> None:
    client = Client(server(channels=2), begins=False)
    client.begin(1)
    client.send(2, Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1))
    client.closed(FRAMING_ERROR)


@pytest.mark.rule("FAIR-3")
def test_sessions_count_towards_the_limit_of_the_user() -> None:
    made = server()
    made.broker.directory.record_access(made.broker.access.set_user_limits("guest", None, 1))
    client = Client(made)
    client.send(1, Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1))
    client.closed(NOT_ALLOWED)


@pytest.mark.rule("FAIR-3")
def test_a_handle_above_the_limit_closes_the_connection() -> None:
    _, client = connected(links=8)
    client.send(0, attach(8))
    client.closed(FRAMING_ERROR)


def test_a_handle_above_the_clients_own_limit_ends_the_session() -> None:
    client = Client(server(), begins=False)
    client.begin(0, handle_max=1)
    client.send(0, attach(2))
    client.ended(LIMIT_EXCEEDED)


def test_a_handle_in_use_closes_the_connection() -> None:
    _, client = connected()
    client.sender("q", 0)
    client.send(0, attach(0, "other"))
    client.closed(HANDLE_IN_USE)


@pytest.mark.parametrize(
    "performative",
    [
        Flow(next_incoming_id=0, incoming_window=1, next_outgoing_id=0, outgoing_window=1, handle=5, link_credit=1),
        Transfer(5, 0, b"0", 0),
        Detach(handle=5),
    ],
)
def test_an_unknown_handle_ends_the_session(performative: object) -> None:
    _, client = connected()
    client.send(0, performative)
    client.ended(UNATTACHED_HANDLE)


def test_after_a_fault_everything_up_to_the_end_is_ignored() -> None:
    _, client = connected()
    client.send(0, Detach(handle=5))
    client.expect(End)
    client.send(0, Detach(handle=5), attach(0), Transfer(5, 0, b"0", 0, True))
    assert client.idle()
    client.send(0, End())
    assert client.idle()
    client.begin(0)


def test_the_incoming_window_is_opened_again() -> None:
    _, client = connected(session_window=10)
    client.sender("q")
    for number in range(5):
        client.post(number, settled=True)
    assert client.idle()
    client.post(5, settled=True)
    flow = client.expect(Flow)
    assert (flow.next_incoming_id, flow.incoming_window, flow.handle) == (6, 10, None)


def test_more_transfers_than_the_window_end_the_session() -> None:
    _, client = connected(session_window=3)
    client.sender("q")
    client.send(0, *[Transfer(0, 0, b"0", 0, True, more=True)] * 4)
    client.ended(WINDOW_VIOLATION)


def test_the_window_stays_closed_during_an_alarm() -> None:
    made, client = connected(session_window=4)
    client.sender("q")
    client.port.endpoint.block("memory")
    made.end_turn()
    client.collect()
    client.expect(Flow)
    for number in range(3):
        client.post(number, settled=True)
    assert client.idle()
    client.port.endpoint.block("")
    made.end_turn()
    client.collect()
    assert max(client.expect(Flow).incoming_window for _ in range(len(client.inbox))) == 4


def test_a_flow_with_echo_is_answered() -> None:
    _, client = connected()
    client.flow(None, echo=True)
    flow = client.expect(Flow)
    assert (flow.next_incoming_id, flow.next_outgoing_id, flow.handle) == (0, 0, None)
    client.flow(None)
    assert client.idle()


def test_a_flow_about_the_future_ends_the_session() -> None:
    _, client = connected()
    client.flow(None, next_incoming_id=1)
    client.ended(WINDOW_VIOLATION)


def test_deliveries_wait_for_the_clients_window() -> None:
    made = server()
    client = Client(made, begins=False)
    client.begin(0, incoming_window=2)
    client.sender("q")
    for number in range(5):
        client.post(number, b"%d" % number, settled=True)
    client.receiver("q")
    client.flow(1, 9, incoming_window=2)
    assert client.deliveries() == [(0, b"0"), (1, b"1")]
    client.flow(None, next_incoming_id=1, incoming_window=2)
    assert client.deliveries() == [(2, b"2")]
    client.flow(None, next_incoming_id=3, incoming_window=ALL)
    assert client.deliveries() == [(3, b"3"), (4, b"4")]
    assert client.idle()


def test_a_disposition_backwards_ends_the_session() -> None:
    _, client = connected()
    client.send(0, Disposition(role=True, first=5, last=4, state=Accepted()))
    client.ended(INVALID_FIELD)


def test_the_end_of_a_session_returns_its_deliveries() -> None:
    made, client = connected()
    client.sender("q")
    client.post(0, b"a", settled=True)
    client.receiver("q", credit=1)
    assert client.deliveries() == [(0, b"a")]
    client.send(0, End())
    assert made.broker.directory.vhost("/").queue("q").ready == 1


def test_a_session_is_listed_with_its_unsettled_deliveries() -> None:
    made, client = connected()
    client.sender("q")
    client.post(0, b"a", settled=True)
    client.post(1, b"b", settled=True)
    client.receiver("q", credit=2)
    made.broker.engine.now += 1500
    (row,) = client.port.endpoint.channel_rows()
    assert (row["number"], row["consumers"], row["unsettled"], row["age_ms"]) == (0, 1, 2, 1500)
    client.send(0, Disposition(role=True, first=0, last=1, settled=True, state=Accepted()))
    (row,) = client.port.endpoint.channel_rows()
    assert (row["unsettled"], row["age_ms"]) == (0, None)
