"""Transfer frames of deliveries: templates, splitting, headers."""

from __future__ import annotations

import pytest

from escrowmq.core.termini.tags import delivery_tag
from escrowmq.wire.amqp10.codec import hot
from escrowmq.wire.amqp10.codec.frames import frame
from escrowmq.wire.amqp10.codec.performatives import Disposition, Transfer
from escrowmq.wire.amqp10.codec.sections import Header, decode_header, split_head
from escrowmq.wire.amqp10.codec.states import DeliveryState, Modified, Released
from escrowmq.wire.amqp10.sending import TransferFrames
from tests.unit.wire.amqp10.clients import Client, body, connected, message, server


def headers(client: Client) -> list[Header]:
    return [
        decode_header(split_head(each.payload)[0]) for each in client.inbox if isinstance(each.performative, Transfer)
    ]


@pytest.mark.parametrize("handle", [1, 255, 256, 1023])
def test_a_delivery_is_a_whole_transfer(handle: int) -> None:
    made, client = connected()
    queue = made.broker.directory.vhost("/").queue("q")
    client.sender("q")
    client.post(0, b"a", settled=True, durable=True, priority=7)
    client.receiver("q", handle, credit=1)
    found = client.expect_message(Transfer)
    assert found.performative == Transfer(handle, 0, delivery_tag(queue.ident, 1, 1), 0, False)
    assert found.payload.endswith(message(b"a"))
    assert decode_header(split_head(found.payload)[0]) == Header(durable=True, priority=7, first_acquirer=True)


@pytest.mark.parametrize(("state", "count"), [(Released(), 0), (Modified(delivery_failed=True), 1)])
def test_a_delivery_again_says_so(state: DeliveryState, count: int) -> None:
    _, client = connected()
    client.sender("q")
    client.post(0, b"a", settled=True)
    client.receiver("q", credit=2)
    client.inbox.clear()
    client.send(0, Disposition(role=True, first=0, settled=True, state=state))
    assert headers(client) == [Header(first_acquirer=False, delivery_count=count)]


@pytest.mark.rule("MSG-2")
@pytest.mark.parametrize("size", [0, 1, 400, 512, 600, 5000, 100_000])
def test_a_message_is_divided_into_frames_of_the_clients_size(size: int) -> None:
    made = server()
    client = Client(made, max_frame_size=512)
    client.sender("q")
    big = b"\x00\x53\x75\xb0" + size.to_bytes(4, "big") + bytes(i % 251 for i in range(size))
    client.send(0, Transfer(0, 0, b"0", 0, True), payload=big)
    client.receiver("q", credit=1)
    found = list(client.inbox)
    assert b"".join(each.payload for each in found).endswith(big)
    assert all(len(each.payload) < 512 for each in found)
    assert [each.performative.more for each in found] == [True] * (len(found) - 1) + [False]
    assert found[0].performative.delivery_id == 0
    client.inbox.clear()
    client.post(1, b"b", settled=True)
    client.flow(1, 1, delivery_count=1)
    assert client.deliveries() == [(1, b"b")]
    client.flow(None, echo=True)
    assert client.inbox.pop().performative.next_outgoing_id == len(found) + 1


def test_the_rest_of_the_ttl_is_sent() -> None:
    made, client = connected()
    client.sender("q")
    client.post(0, b"a", settled=True, ttl=10_000)
    made.after(4000)
    client.receiver("q", credit=1)
    assert [header.ttl for header in headers(client)] == [6000]


@pytest.mark.rule("FAIR-1")
@pytest.mark.parametrize("alike", [False, True])
def test_deliveries_with_a_ttl_are_not_built_one_by_one(alike: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    made, client = connected()
    client.sender("q")
    ttls = [600_000] * 20 if alike else [100_000 + 7 * i for i in range(18)] + [2**32 - 1, 40_000]
    for number, ttl in enumerate(ttls):
        client.post(number, b"%d" % number, settled=True, ttl=ttl)
    made.after(39_900)
    singles: list[int] = []
    monkeypatch.setattr(TransferFrames, "_single", lambda *_: singles.append(1))
    client.receiver("q", credit=20)
    assert singles == []
    found = [(header.ttl, body(each.payload)) for header, each in zip(headers(client), client.inbox, strict=True)]
    assert found == [(ttl - 39_900, b"%d" % number) for number, ttl in enumerate(ttls)]


@pytest.mark.parametrize("returned", [(), (0,), (3, 4), (9,)])
def test_many_deliveries_are_the_same_as_single_ones(returned: tuple[int, ...]) -> None:
    _, client = connected()
    client.sender("q")
    for number in range(10):
        client.post(number, b"%d" % number * number, settled=True)
    client.receiver("q", credit=10)
    whole = [(each.performative, each.payload) for each in client.inbox]
    assert [payload.endswith(message(b"%d" % n * n)) for n, (_, payload) in enumerate(whole)] == [True] * 10
    assert [performative.delivery_id for performative, _ in whole] == list(range(10))
    client.inbox.clear()
    for number in returned:
        client.send(0, Disposition(role=True, first=number, settled=True, state=Released()))
    client.flow(1, 10, delivery_count=10)
    assert [n for n, _ in client.deliveries()] == list(range(10, 10 + len(returned)))


@pytest.mark.parametrize("sizes", [(20, 1, 1, 9, 8), (1, 1, 1), (7, 7, 12), (3, 40), (40, 3), (8, 8)])
def test_deliveries_of_several_runs_are_the_same_as_single_ones(sizes: tuple[int, ...]) -> None:
    made, client = connected()
    queue = made.broker.directory.vhost("/").queue("q")
    client.sender("q")
    number = 0
    for i, size in enumerate(sizes):
        bodies = [b"%d" % (number + n) * n for n in range(size)]
        transfers = [
            frame(0, hot.encode_transfer(0, number + n, b"%d" % n, settled=True), message(each, priority=i % 9))
            for n, each in enumerate(bodies)
        ]
        client.send_bytes(b"".join(transfers))
        number += size
    client.receiver("q", credit=number)
    found = list(client.inbox)
    assert [each.performative for each in found] == [
        Transfer(1, n, delivery_tag(queue.ident, n + 1, n + 1), 0, False) for n in range(number)
    ]
    expected = [(i % 9, b"%d" % (sum(sizes[:i]) + n) * n) for i, size in enumerate(sizes) for n in range(size)]
    assert [(decode_header(split_head(each.payload)[0]).priority, body(each.payload)) for each in found] == expected
