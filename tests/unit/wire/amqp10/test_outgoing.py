"""Links on which the client receives: credit, drain, echo, modes, limits."""

from __future__ import annotations

import pytest

from escrowmq.core.access.holdings import STEP
from escrowmq.wire.amqp10.codec.performatives import SECOND, Detach, Disposition, End, Flow, Transfer
from escrowmq.wire.amqp10.codec.states import Accepted
from escrowmq.wire.amqp10.codec.termini import Source
from escrowmq.wire.amqp10.errors import LIMIT_EXCEEDED, RESOURCE_DELETED
from tests.unit.wire.amqp10.clients import Client, Server, body, connected, message, server


def stocked(count: int, **limits: int) -> tuple[Server, Client]:
    """Return a client whose queue `q` has `count` messages."""
    made, client = connected(**limits)
    client.sender("q")
    for number in range(count):
        client.post(number, b"%d" % number, settled=True)
    client.inbox.clear()
    return made, client


def numbers(client: Client) -> list[int]:
    return [number for number, _ in client.deliveries()]


def test_nothing_is_delivered_without_credit() -> None:
    _, client = stocked(3)
    client.receiver("q")
    assert client.idle()
    client.flow(1, 2)
    assert numbers(client) == [0, 1]
    client.flow(1, 2, delivery_count=1)
    assert numbers(client) == [2]
    client.flow(1, 0, delivery_count=3)
    assert client.idle()


def test_settlements_restore_no_credit() -> None:
    _, client = stocked(3)
    client.receiver("q", credit=1)
    assert numbers(client) == [0]
    client.send(0, Disposition(role=True, first=0, settled=True, state=Accepted()))
    assert client.idle()


def test_a_drain_uses_the_credit_up() -> None:
    _, client = stocked(2)
    client.receiver("q")
    client.flow(1, 10, drain=True)
    assert numbers(client) == [0, 1]
    flow = client.expect(Flow)
    assert (flow.handle, flow.delivery_count, flow.link_credit, flow.drain, flow.available) == (1, 10, 0, True, 0)
    client.post(2, settled=True)
    assert client.idle()
    client.flow(1, 1, delivery_count=10)
    assert numbers(client) == [2]


def test_a_drain_without_credit_is_answered() -> None:
    _, client = stocked(1)
    client.receiver("q")
    client.flow(1, 0, drain=True)
    assert client.expect(Flow).drain


def test_an_echo_tells_the_state_of_the_link() -> None:
    _, client = stocked(5)
    client.receiver("q", credit=2)
    assert numbers(client) == [0, 1]
    client.flow(1, 0, delivery_count=2, echo=True)
    flow = client.expect(Flow)
    assert (flow.delivery_count, flow.link_credit, flow.available, flow.next_outgoing_id) == (2, 0, 3, 2)


@pytest.mark.rule("SET-1")
def test_presettled_deliveries_are_gone_when_they_are_sent() -> None:
    made, client = stocked(2)
    client.receiver("q", credit=5, settled=True)
    sent = [each.performative.settled for each in client.inbox]
    assert sent == [True, True]
    made.lose(client.port)
    made.end_turn()
    assert made.broker.directory.vhost("/").queue("q").ready == 0


def test_two_links_of_a_session_share_its_numbers() -> None:
    made, client = stocked(4)
    client.receiver("q", 1)
    client.receiver("q", 2)
    client.flow(1, 1)
    client.flow(2, 1)
    client.flow(1, 1, delivery_count=1)
    client.flow(2, 1, delivery_count=1)
    handles = {
        each.performative.delivery_id: each.performative.handle
        for each in client.inbox
        if hasattr(each.performative, "delivery_id")
    }
    assert handles == {0: 1, 1: 2, 2: 1, 3: 2}
    client.inbox.clear()
    client.send(0, Disposition(role=True, first=0, last=2, settled=True, state=Accepted()))
    client.send(0, Detach(handle=2, closed=True))
    client.expect(Detach)
    assert made.broker.directory.vhost("/").queue("q").ready == 1


def test_a_deleted_queue_detaches_its_consumers() -> None:
    made, client = stocked(1)
    client.receiver("q", credit=1)
    client.deliveries()
    made.broker.directory.delete_queue(made.broker.directory.vhost("/").queue("q"))
    made.end_turn()
    client.collect()
    client.detached(1, RESOURCE_DELETED)


@pytest.mark.rule("FAIR-3")
def test_unsettled_deliveries_are_bounded() -> None:
    _, client = stocked(5, unsettled=3)
    client.receiver("q")
    client.flow(1, 1)
    client.flow(1, 2)
    client.flow(1, 3)
    client.flow(1, 5)
    assert numbers(client) == [0, 1, 2]
    client.send(0, Disposition(role=True, first=0, settled=True, state=Accepted()))
    assert numbers(client) == [3, 4]


def test_deliveries_that_wait_for_the_window_return() -> None:
    made, client = stocked(3)
    client.receiver("q")
    client.flow(1, 3, incoming_window=1)
    assert numbers(client) == [0]
    client.send(0, Detach(handle=1, closed=True))
    client.expect(Detach)
    assert made.broker.directory.vhost("/").queue("q").ready == 3
    client.send(0, End())


def test_a_connection_that_is_not_read_gets_no_deliveries() -> None:
    made, client = stocked(3, outbox=10_000)
    client.port.endpoint.congested(20_000)
    client.receiver("q", credit=3)
    assert client.idle()
    client.port.endpoint.congested(0)
    made.end_turn()
    client.collect()
    assert numbers(client) == [0, 1, 2]


def test_a_large_message_waits_for_the_window_in_its_middle() -> None:
    made = server()
    client = Client(made, begins=False, max_frame_size=512)
    client.begin(0, incoming_window=2)
    client.sender("q")
    big = message(b"x" * 200) + message(b"y" * 250) + message(b"z" * 250) + message(b"a" * 250) + message(b"b" * 250)
    client.send(0, Transfer(0, 0, b"0", 0, True), payload=big)
    client.post(1, b"small", settled=True)
    client.receiver("q")
    client.flow(1, 10, incoming_window=2, drain=True)
    parts = list(client.inbox)
    assert [each.performative.more for each in parts] == [True, True]
    client.inbox.clear()
    client.flow(None, next_incoming_id=2, incoming_window=1)
    parts += [client.expect_message(Transfer)]
    assert client.idle()
    client.flow(None, next_incoming_id=3, incoming_window=9)
    rest = [each for each in client.inbox if isinstance(each.performative, Transfer)]
    *last, small = rest
    assert [each.performative.delivery_id for each in (parts[0], small)] == [0, 1]
    assert b"".join(each.payload for each in parts + last).endswith(big)
    assert body(small.payload) == b"small"
    answer = client.inbox[-1].performative
    assert (answer.drain, answer.link_credit, answer.delivery_count) == (True, 0, 10)


# -- memory


def heavy(count: int, size: int, limit: int = 8 * STEP) -> tuple[Server, Client]:
    """Return a client with `count` large messages, which may hold little."""
    made, client = connected()
    client.sender("q")
    payload = b"\x00\x53\x75\xb0" + size.to_bytes(4, "big") + bytes(size)
    for number in range(count):
        client.send(0, Transfer(0, number, b"%d" % number, 0, True), payload=payload)
    client.inbox.clear()
    made.broker.holdings.user_limit = limit
    return made, client


def held(made: Server) -> int:
    return made.broker.holdings.of_user("guest")


@pytest.mark.rule("FAIR-3")
def test_unsettled_deliveries_stop_at_the_limit_and_go_on() -> None:
    made, client = heavy(3000, 1000)
    client.receiver("q", credit=5000)
    seen = got = len(numbers(client))
    assert 100 < got < 3000
    assert held(made) >= 8 * STEP
    while got:
        client.send(0, Disposition(role=True, first=0, last=seen - 1, settled=True, state=Accepted()))
        got = len(numbers(client))
        seen += got
    assert seen == 3000
    made.lose(client.port)
    assert held(made) == 0


@pytest.mark.rule("FAIR-3")
def test_settled_deliveries_do_not_stop_at_the_limit() -> None:
    made, client = heavy(300, 1000)
    made.broker.holdings.begin("guest", "/").follow(9 * STEP)
    client.receiver("q", credit=500, settled=True)
    assert len(numbers(client)) == 300


@pytest.mark.rule("FAIR-3")
def test_a_link_that_waited_for_its_window_then_waits_for_memory() -> None:
    made, client = heavy(3, 1000)
    client.receiver("q")
    client.flow(1, 10, incoming_window=1)
    assert numbers(client) == [0]
    others = made.broker.holdings.begin("guest", "/")
    others.follow(9 * STEP)
    client.flow(None, next_incoming_id=1, incoming_window=1)
    client.inbox.clear()
    others.close()
    made.end_turn()
    client.collect()
    client.flow(None, next_incoming_id=2, incoming_window=10)
    assert len(numbers(client)) >= 1


@pytest.mark.rule("FAIR-2", "FAIR-3")
@pytest.mark.parametrize("settled", [True, False])
def test_what_waits_for_the_window_counts(settled: bool) -> None:
    made, client = heavy(1, 100_000)
    made.lose(client.port)
    client = Client(made, begins=False, max_frame_size=512)
    client.begin(0, incoming_window=10)
    client.receiver("q", settled=settled)
    client.flow(1, 1, incoming_window=10)
    assert held(made) >= 90_000
    client.flow(None, next_incoming_id=10, incoming_window=1000)
    assert held(made) <= (3 * STEP if settled else 9 * STEP)
    client.send(0, Detach(handle=1, closed=True))
    assert held(made) == 0


@pytest.mark.rule("FAIR-3")
def test_a_relieved_link_is_detached_with_the_reason() -> None:
    made, client = heavy(3, 1000)
    client.receiver("q", credit=3)
    client.inbox.clear()
    (terminus,) = [one for key, one in made.broker.termini.by_key.items() if key.link == "r1"]
    terminus.deliveries.give_up("memory is short")
    made.end_turn()
    client.collect()
    client.detached(1, LIMIT_EXCEEDED)
    assert made.broker.directory.vhost("/").queue("q").ready == 3


@pytest.mark.rule("FAIR-3", "SET-10")
def test_the_terminus_of_a_relieved_link_stays_if_the_log_has_its_deliveries() -> None:
    made, client = connected()
    client.sender("q")
    client.post(0, b"a", settled=True, durable=True)
    source = Source("q", durable=2, expiry_policy="never")
    client.receiver(None, source=source, rcv_settle_mode=SECOND, credit=1)
    tag = client.expect(Transfer).delivery_tag
    (terminus,) = [one for key, one in made.broker.termini.by_key.items() if key.link == "r1"]
    terminus.deliveries.give_up("memory is short")
    made.end_turn()
    client.collect()
    detach = client.expect(Detach)
    assert detach.error is not None
    assert (detach.closed, detach.error.condition) == (False, LIMIT_EXCEEDED)
    client.send(0, Detach(handle=1, closed=False))
    client.receiver(None, source=source, rcv_settle_mode=SECOND, unsettled={tag: None}, credit=1)
    again = client.expect_message(Transfer)
    assert (again.performative.delivery_tag, again.performative.resume, body(again.payload)) == (tag, True, b"a")
    client.send(0, Disposition(role=True, first=again.performative.delivery_id, settled=False, state=Accepted()))
    assert client.expect(Disposition).settled
    assert made.broker.directory.vhost("/").queue("q").unsettled == 0
