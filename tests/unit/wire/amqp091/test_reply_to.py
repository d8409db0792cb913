"""Direct reply-to: replies go directly to the channel of the request."""

from __future__ import annotations

import pytest

from escrowmq.wire.amqp091 import codes, spec
from escrowmq.wire.amqp091.packed import PACKED
from escrowmq.wire.amqp091.properties import REPLY_TO, Properties
from tests.harness.client import SimClient
from tests.harness.frames import Message, publish_frames
from tests.unit.wire.amqp091.clients import Server, fails_channel, pair

ASKING = Properties(reply_to=REPLY_TO, correlation_id="7").encode()


def asking() -> tuple[Server, SimClient, SimClient]:
    """Return a server, a client that waits for replies on channel 1, and one that answers requests in queue
    `requests`.
    """
    made, client = pair()
    client.call(1, spec.BasicConsume(REPLY_TO, "replies", no_ack=True), spec.BasicConsumeOk)
    answering = SimClient(made)
    answering.open_channel(1)
    answering.declare(1, "requests")
    return made, client, answering


def request(client: SimClient, answering: SimClient, body: bytes = b"question") -> Message:
    client.publish(1, "requests", body, header=ASKING)
    found = answering.get(1, "requests", no_ack=True)
    assert found is not None
    assert found.body == body
    return found


def address(found: Message) -> str:
    properties = Properties.decode(found.header)
    assert properties.correlation_id == "7"
    assert properties.reply_to is not None
    assert properties.reply_to.startswith(f"{REPLY_TO}.")
    return properties.reply_to


def test_a_reply_reaches_the_requester() -> None:
    _, client, answering = asking()
    for i in range(3):
        where = address(request(client, answering, b"%d" % i))
        answering.publish(1, where, b"answer %d" % i)
        (delivery,) = client.deliveries()
        assert delivery.body == b"answer %d" % i
        assert delivery.method == spec.BasicDeliver("replies", i + 1, False, "", where)


@pytest.mark.parametrize("channel", [1, 2])
@pytest.mark.parametrize("piece", [0, 700])
def test_requests_with_ids_of_their_own_are_stored_together_and_carry_the_address(channel: int, piece: int) -> None:
    made = Server()
    client, answering = SimClient(made, piece=piece), SimClient(made)
    client.open_channel(channel)
    client.call(channel, spec.BasicConsume(REPLY_TO, "replies", no_ack=True), spec.BasicConsumeOk)
    answering.open_channel(1)
    answering.declare(1, "requests")
    ((_, where),) = made.broker.engine.direct
    asked = [Properties(reply_to=REPLY_TO, correlation_id=f"{n:04}", timestamp=n) for n in range(20)]
    method = spec.BasicPublish("", "requests")
    client.send_bytes(b"".join(publish_frames(channel, method, each.encode(), b"question") for each in asked))
    entries = [*made.broker.directory.vhosts["/"].queues["requests"].order.in_memory()]
    assert len(entries) == 20
    assert sum(entry.run.envelope.protocol == PACKED for entry in entries) >= 18
    for each in asked:
        each.reply_to = where
        found = answering.get(1, "requests", no_ack=True)
        assert found is not None
        assert (Properties.decode(found.header), found.body) == (each, b"question")


def test_requests_with_routing_keys_of_their_own_carry_the_address() -> None:
    made, client, answering = asking()
    ((_, where),) = made.broker.engine.direct
    answering.call(1, spec.QueueBind("requests", "amq.topic", "#"), spec.QueueBindOk)
    plain = [Properties(correlation_id=f"{n:04}") for n in range(10)]
    asked = [Properties(correlation_id=f"{n:04}", reply_to=REPLY_TO) for n in range(10)]
    mixed = [each for pair in zip(plain, asked, strict=True) for each in pair]
    for sent in (plain, asked, mixed):
        client.send_bytes(
            b"".join(
                publish_frames(1, spec.BasicPublish("amq.topic", f"key {n % 12}"), each.encode(), b"question")
                for n, each in enumerate(sent)
            )
        )
    for each in [*plain, *asked, *mixed]:
        found = answering.get(1, "requests", no_ack=True)
        assert found is not None
        properties = Properties.decode(found.header)
        assert properties.correlation_id == each.correlation_id
        assert properties.reply_to == (each.reply_to and where)


def test_replies_to_an_address_that_is_gone_are_lost_also_when_the_topology_changes() -> None:
    _, client, answering = asking()
    where = address(request(client, answering))
    replies = [
        publish_frames(
            1, spec.BasicPublish("", where), Properties(correlation_id=f"{n}", priority=n % 2).encode(), b"x"
        )
        for n in range(4)
    ]
    answering.send_bytes(b"".join(replies))
    assert len(client.deliveries()) == 4
    client.lose()
    for _ in range(2):
        answering.send_bytes(b"".join(replies))
        answering.call(1, spec.QueueBind("requests", "amq.topic", "#"), spec.QueueBindOk)
        answering.call(1, spec.QueueUnbind("requests", "amq.topic", "#"), spec.QueueUnbindOk)
    assert not answering.closed


def test_requests_with_ids_of_their_own_are_refused_without_an_address() -> None:
    _, client, answering = asking()
    client.open_channel(2)
    method = spec.BasicPublish("", "requests")
    before = [Properties(correlation_id=f"{n:04}").encode() for n in range(3)]
    asks = Properties(reply_to=REPLY_TO, correlation_id="0003").encode()
    client.send_bytes(b"".join(publish_frames(2, method, each, b"x") for each in [*before, asks, before[0]]))
    fails_channel(client, 2, codes.PRECONDITION_FAILED, "fast reply consumer does not exist")
    found = [answering.get(1, "requests", no_ack=True) for _ in range(4)]
    assert [each is not None for each in found] == [True, True, True, False]


def test_the_reply_queue_can_be_inspected_while_it_exists() -> None:
    _, client, answering = asking()
    where = address(request(client, answering))
    assert answering.call(1, spec.QueueDeclare(where, passive=True), spec.QueueDeclareOk).consumer_count == 1
    assert answering.call(1, spec.QueueDeclare(REPLY_TO), spec.QueueDeclareOk).consumer_count == 1
    client.lose()
    answering.send(1, spec.QueueDeclare(where, passive=True))
    fails_channel(answering, 1, codes.NOT_FOUND, where)


@pytest.mark.parametrize("used", [False, True], ids=["unused", "used"])
@pytest.mark.parametrize("how", ["lost", "closed", "cancelled"])
def test_a_reply_to_a_closed_channel_is_dropped(how: str, used: bool) -> None:
    made, client, answering = asking()
    where = address(request(client, answering))
    if used:
        answering.publish(1, where, b"first", mandatory=True)
        assert len(client.deliveries()) == 1
    if how == "lost":
        client.lose()
    elif how == "closed":
        client.call(1, spec.ChannelClose(200, "", 0, 0), spec.ChannelCloseOk)
    else:
        client.call(1, spec.BasicCancel("replies"), spec.BasicCancelOk)
    answering.publish(1, where, b"late")
    assert not answering.inbox
    answering.publish(1, where, b"late", mandatory=True)
    assert answering.expect(1, spec.BasicReturn).reply_code == codes.NO_ROUTE
    assert not client.deliveries()
    assert not made.broker.engine.direct


def test_reply_addresses_cannot_be_guessed() -> None:
    made, client, answering = asking()
    where = address(request(client, answering))
    client.open_channel(2)
    client.call(2, spec.BasicConsume(REPLY_TO, "more", no_ack=True), spec.BasicConsumeOk)
    assert len(made.broker.engine.direct) == 2
    answering.publish(1, f"{REPLY_TO}.guess", b"x")
    answering.publish(1, where[:-1], b"x")
    assert not client.deliveries()


@pytest.mark.rule("TX-2")
@pytest.mark.rule("TX-8")
def test_a_reply_in_a_transaction_is_sent_once_the_commit_is_on_disk() -> None:
    made, client, answering = asking()
    where = address(request(client, answering))
    answering.open_channel(2, mode="tx")
    answering.publish(2, where, b"answer")
    answering.publish(2, "requests", b"more")
    assert not client.deliveries()
    answering.send(2, spec.TxCommit(), disk=False)
    assert not client.deliveries()
    made.run_disk()
    answering.expect(2, spec.TxCommitOk)
    assert client.bodies() == [b"answer"]


def test_a_reply_in_a_rolled_back_transaction_is_not_sent() -> None:
    _, client, answering = asking()
    where = address(request(client, answering))
    answering.open_channel(2, mode="tx")
    answering.publish(2, where, b"answer")
    answering.call(2, spec.TxRollback(), spec.TxRollbackOk)
    assert not client.deliveries()


def test_invalid_use_of_direct_reply_to_is_refused() -> None:
    _, client = pair()
    client.declare(1, "requests")
    client.publish(1, "requests", b"x", header=ASKING)
    fails_channel(client, 1, codes.PRECONDITION_FAILED, "fast reply consumer does not exist")
    client.open_channel(1)
    client.send(1, spec.BasicConsume(REPLY_TO, "t"))
    fails_channel(client, 1, codes.PRECONDITION_FAILED, "reply consumer cannot acknowledge")
    client.open_channel(1)
    client.call(1, spec.BasicConsume(REPLY_TO, "one", no_ack=True), spec.BasicConsumeOk)
    client.send(1, spec.BasicConsume(REPLY_TO, "two", no_ack=True))
    fails_channel(client, 1, codes.PRECONDITION_FAILED, "reply consumer already set")


def test_replies_are_confirmed() -> None:
    _, client, answering = asking()
    where = address(request(client, answering))
    answering.call(1, spec.ConfirmSelect(), spec.ConfirmSelectOk)
    answering.publish(1, where, b"answer", b"another")
    assert answering.expect(1, spec.BasicAck) == spec.BasicAck(2, True)
    assert client.bodies() == [b"answer", b"another"]
