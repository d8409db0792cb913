"""Links: attached, detaching, gone."""

from __future__ import annotations

import pytest

from escrowmq.wire.amqp10.codec.performatives import SENDER, Attach, Detach, Disposition, Transfer
from escrowmq.wire.amqp10.codec.states import Accepted
from escrowmq.wire.amqp10.codec.termini import Source, Target
from escrowmq.wire.amqp10.errors import HANDLE_IN_USE, NOT_FOUND, UNATTACHED_HANDLE
from tests.unit.wire.amqp10.clients import Client, connected, message

MISSING = Attach("l", 0, SENDER, source=Source(), target=Target("/queues/nope"), initial_delivery_count=0)


@pytest.mark.parametrize("closed", [True, False])
def test_a_detach_is_answered_in_kind(closed: bool) -> None:
    _, client = connected()
    client.sender("q")
    client.send(0, Detach(handle=0, closed=closed))
    answer = client.expect(Detach)
    assert (answer.handle, answer.closed, answer.error) == (0, closed, None)
    client.send(0, Detach(handle=0, closed=closed))
    client.ended(UNATTACHED_HANDLE)


def test_a_refused_link_ignores_everything_but_a_detach() -> None:
    made, client = connected()
    client.send(0, MISSING)
    assert client.expect(Attach).target is None
    detach = client.expect(Detach)
    assert detach.error is not None
    assert (detach.closed, detach.error.condition) == (True, NOT_FOUND)
    client.send(0, Transfer(0, 0, b"0", 0, False), payload=message(b"x"))
    client.flow(0, 5)
    assert client.idle()
    client.send(0, Detach(handle=0, closed=True))
    assert client.idle()
    client.sender("q", 0)
    assert made.faults == [(NOT_FOUND, "no queue 'nope' in vhost '/'")]


def test_a_handle_stays_in_use_until_the_client_has_detached_it() -> None:
    _, client = connected()
    client.send(0, MISSING, MISSING)
    assert client.expect(Attach).target is None
    client.expect(Detach)
    client.closed(HANDLE_IN_USE)


def settled_after(client: Client, *, closed: bool) -> int:
    """Detach a consumer with an unsettled delivery, then accept it. Return the number of messages that are ready."""
    client.sender("q")
    client.post(0, b"a", settled=True)
    client.receiver("q", credit=1)
    assert client.deliveries() == [(0, b"a")]
    client.send(0, Detach(handle=1, closed=closed))
    client.expect(Detach)
    client.send(0, Disposition(role=True, first=0, settled=True, state=Accepted()))
    return client.server.broker.directory.vhost("/").queue("q").ready


def test_a_detached_link_leaves_its_deliveries_to_the_session() -> None:
    _, client = connected()
    assert settled_after(client, closed=False) == 0


def test_a_closed_link_returns_its_deliveries() -> None:
    _, client = connected()
    assert settled_after(client, closed=True) == 1
