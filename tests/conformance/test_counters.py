"""The counters of messages, branches and half messages, as each protocol moves them."""

from __future__ import annotations

from escrowmq.core.branches.branch import State
from escrowmq.core.counters import Traffic, arrived
from escrowmq.core.half.state import HalfState
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.queues.queue import Queue
from escrowmq.wire.amqp091 import spec
from escrowmq.wire.amqp091.table import FieldTable
from escrowmq.wire.amqp10.codec.performatives import RECEIVER, Disposition
from escrowmq.wire.amqp10.codec.states import Accepted, Rejected, Released
from escrowmq.wire.rocketmq.remoting.codes import ResultCode
from tests.harness.client import SimClient
from tests.harness.server import SimServer
from tests.unit.core.half.half_site import HalfSite
from tests.unit.wire.amqp091.clients import Server, pair
from tests.unit.wire.amqp091.test_dtx_methods import prepared, xid
from tests.unit.wire.amqp10.clients import connected
from tests.unit.wire.rocketmq.grpc.test_receiving import begun, poll, received, send
from tests.unit.wire.rocketmq.grpc.test_settling import ack
from tests.unit.wire.rocketmq.remoting.clients import Client as RemotingClient
from tests.unit.wire.rocketmq.remoting.clients import server as rocketmq_server


def queue(server: SimServer, name: str = "q") -> Queue:
    return server.broker.directory.vhost("/").queue(name)


def traffic(server: SimServer, protocol: str) -> dict[str, int]:
    """Return the counters that are not 0."""
    found = server.broker.engine.counters.traffic["/", protocol]
    return {name: getattr(found, name) for name in Traffic.__slots__ if getattr(found, name)}


def opened(mode: str = "", arguments: FieldTable | None = None) -> tuple[Server, SimClient]:
    """Return a server with the queue `q`, and a client of AMQP 0-9-1 with channel 1."""
    server, client = pair()
    client.open_channel(2, mode=mode)
    client.declare(2, "q", arguments=arguments or {})
    return server, client


def consumed(client: SimClient, *, no_ack: bool = False) -> None:
    client.send(2, spec.BasicConsume("q", "c", no_ack=no_ack, no_wait=True))


def test_amqp_091_counts_publishes_and_their_confirms() -> None:
    server, client = opened("confirm")
    client.publish(2, "q", b"1", b"2", b"3")
    client.publish(2, "nowhere", b"4")
    client.publish(2, "nowhere", b"5", mandatory=True)
    assert traffic(server, "amqp091") == {
        "received": 5, "to_confirm": 5, "confirmed": 5, "dropped": 1, "returned": 1
    }  # fmt: skip
    assert arrived(queue(server)) == 3


def test_a_publish_that_a_full_queue_refuses_is_counted_as_refused() -> None:
    server, client = opened("confirm", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    client.publish(2, "q", b"1", b"2")
    assert traffic(server, "amqp091") == {"received": 2, "to_confirm": 2, "confirmed": 1, "refused": 1}


def test_publishes_to_many_queues_are_counted_once_each() -> None:
    server, client = opened()
    client.declare(2, "q2")
    for body in (b"1", b"2"):
        client.publish(2, "q", body)
        client.publish(2, "q2", body)
    assert traffic(server, "amqp091") == {"received": 4}
    assert (arrived(queue(server)), arrived(queue(server, "q2"))) == (2, 2)


def test_amqp_091_counts_deliveries_and_acknowledgements() -> None:
    server, client = opened()
    client.publish(2, "q", b"1", b"2", b"3", b"4")
    consumed(client)
    tags = [each.method.delivery_tag for each in client.deliveries() if isinstance(each.method, spec.BasicDeliver)]
    client.send(2, spec.BasicAck(tags[1], multiple=True))
    client.send(2, spec.BasicNack(tags[2], multiple=False, requeue=True))
    client.send(2, spec.BasicReject(tags[3], requeue=False))
    counters = queue(server).counters
    assert (counters.delivered, counters.redelivered, counters.requeued) == (5, 1, 1)
    assert (counters.acknowledged, counters.others) == (2, {Outcome.REJECTED: 1})


def test_deliveries_that_settle_at_once_are_counted_apart() -> None:
    server, client = opened()
    client.publish(2, "q", b"1", b"2")
    assert client.get(2, "q", no_ack=True) is not None
    consumed(client, no_ack=True)
    counters = queue(server).counters
    assert (counters.auto_settled, counters.delivered, counters.acknowledged, counters.accepted) == (2, 0, 0, 2)


def test_a_redelivery_that_settles_at_once_is_counted_as_one() -> None:
    server, client = opened()
    client.publish(2, "q", b"1")
    message = client.get(2, "q")
    assert message is not None
    client.send(2, spec.BasicReject(1, requeue=True))
    assert client.get(2, "q", no_ack=True) is not None
    counters = queue(server).counters
    assert (counters.delivered, counters.auto_settled, counters.redelivered) == (1, 1, 1)


def test_what_leaves_a_queue_is_counted_by_its_reason() -> None:
    server, client = opened(
        arguments={"x-max-length": 3, "x-message-ttl": 1000, "x-dead-letter-exchange": "amq.fanout"}
    )
    client.publish(2, "q", b"1", b"2", b"3", b"4")
    assert client.get(2, "q") is not None
    client.send(2, spec.BasicReject(1, requeue=False))
    server.after(2000)
    counters = queue(server).counters
    assert counters.others == {Outcome.DROPPED: 1, Outcome.REJECTED: 1, Outcome.EXPIRED: 2}
    assert counters.dead_lettered == counters.others
    client.publish(2, "q", b"5")
    client.send(2, spec.QueuePurge("q"))
    assert counters.others[Outcome.PURGED] == 1
    assert Outcome.PURGED not in counters.dead_lettered


def test_a_transaction_counts_its_work_when_it_commits() -> None:
    server, client = opened("tx")
    client.publish(2, "q", b"1")
    assert arrived(queue(server)) == 0
    client.call(2, spec.TxCommit(), spec.TxCommitOk)
    assert client.get(2, "q") is not None
    client.send(2, spec.BasicAck(1))
    client.call(2, spec.TxRollback(), spec.TxRollbackOk)
    assert queue(server).counters.acknowledged == 0
    client.send(2, spec.BasicAck(1))
    client.call(2, spec.TxCommit(), spec.TxCommitOk)
    assert (arrived(queue(server)), queue(server).counters.acknowledged) == (1, 1)
    local = server.broker.engine.counters.local
    assert (local.entered[State.COMMITTED], local.entered[State.ROLLED_BACK]) == (2, 1)


def test_a_stream_counts_acknowledgements_though_its_messages_stay() -> None:
    server, client = opened(arguments={"x-queue-type": "stream"})
    client.publish(2, "q", b"1", b"2")
    client.send(2, spec.BasicQos(0, 10))
    client.send(2, spec.BasicConsume("q", "c", no_wait=True, arguments={"x-stream-offset": "first"}))
    client.send(2, spec.BasicAck(2, multiple=True))
    counters = queue(server).counters
    assert (counters.delivered, counters.acknowledged, queue(server).ready) == (2, 2, 2)


def test_branches_with_an_xid_are_counted_by_their_outcomes() -> None:
    server, client = pair()
    prepared(server, client, 3)
    client.call(2, spec.DtxCoordinationCommit(xid(0).encode()), spec.DtxCoordinationCommitOk)
    client.call(2, spec.DtxCoordinationRollback(xid(1).encode()), spec.DtxCoordinationRollbackOk)
    xa = server.broker.engine.counters.xa
    assert xa.begun == 3
    assert dict(xa.entered) == {State.PREPARED: 3, State.COMMITTED: 1, State.ROLLED_BACK: 1}
    assert arrived(queue(server)) == 1


def test_amqp_10_counts_posts_deliveries_and_dispositions() -> None:
    server, client = connected()
    client.sender("q")
    for number in range(3):
        client.post(number)
    client.post(3, settled=True)
    assert traffic(server, "amqp10") == {"received": 4, "to_confirm": 3, "confirmed": 3}
    client.inbox.clear()
    client.receiver("q", credit=10)
    states: tuple[Accepted | Rejected | Released, ...] = (Accepted(), Rejected(), Released())
    for number, state in enumerate(states):
        client.send(0, Disposition(RECEIVER, number, number, True, state))
    counters = queue(server).counters
    assert (counters.delivered, counters.redelivered, counters.requeued) == (5, 1, 1)
    assert (counters.acknowledged, counters.others) == (1, {Outcome.REJECTED: 1})


def test_remoting_counts_sends_and_pulls() -> None:
    server = rocketmq_server()
    client = RemotingClient(server)
    for _ in range(3):
        assert client.publish("t").code == ResultCode.SUCCESS
    assert client.pull("t").code == ResultCode.SUCCESS
    assert traffic(server, "rocketmq-remoting") == {"received": 3, "to_confirm": 3, "confirmed": 3}
    topic = server.broker.topics.find(server.broker.directory.vhost("/"), "t")
    assert topic is not None
    assert (arrived(topic.streams[0]), topic.streams[0].counters.auto_settled) == (3, 3)


def test_grpc_counts_sends_leases_and_acknowledgements() -> None:
    peer = begun()
    send(peer, b"1", b"2")
    handles = [each.system_properties.receipt_handle for each in received(peer, poll(peer))]
    ack(peer, handles[0])
    peer.server.after(31_000)
    assert len(received(peer, poll(peer))) == 1
    assert traffic(peer.server, "rocketmq-grpc") == {"received": 2, "to_confirm": 2, "confirmed": 2}
    topic = peer.server.broker.topics.find(peer.server.broker.directory.vhost("/"), "t")
    assert topic is not None
    counters = [stream.counters for stream in topic.streams]
    assert sum(each.delivered for each in counters) == 3
    assert sum(each.redelivered for each in counters) == 1
    assert sum(each.acknowledged for each in counters) == 1


def test_half_messages_are_counted_when_stored_and_decided() -> None:
    site = HalfSite()
    for ident in ("a", "b"):
        site.store(ident)
    site.commit("a")
    site.roll_back("b")
    half = site.broker.engine.counters.half
    assert (half.stored, half.committed, half.rolled_back) == (2, 1, 1)
    assert site.state("a") is HalfState.COMMITTED
