"""Calls that arrive together are carried out together, and each is answered by itself."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.core.counters import Traffic
from escrowmq.wire.rocketmq.content import unpack
from escrowmq.wire.rocketmq.grpc import gathering
from escrowmq.wire.rocketmq.proto.definition_pb2 import Code, MessageType, Resource, TransactionResolution
from escrowmq.wire.rocketmq.proto.service_pb2 import EndTransactionRequest, SendMessageRequest
from tests.unit.wire.rocketmq.grpc.peer import GrpcPeer, message, server
from tests.unit.wire.rocketmq.grpc.test_publishing import stored

COMMIT, ROLL_BACK = TransactionResolution.COMMIT, TransactionResolution.ROLLBACK
TRANSACTION = MessageType.TRANSACTION


def ready(kind: str = "mixed", partitions: int = 1) -> GrpcPeer:
    peer = GrpcPeer(server())
    peer.topic("t", kind, partitions)
    assert together(peer, send("first"))[0].status.code == Code.OK
    return peer


def send(ident: str, kind: MessageType = MessageType.NORMAL, **system: Any) -> SendMessageRequest:
    return SendMessageRequest(messages=[message("t", ident.encode(), ident, kind, **system)])


def end(ident: str, resolution: TransactionResolution = COMMIT) -> EndTransactionRequest:
    topic = Resource(name="t")
    return EndTransactionRequest(topic=topic, message_id=ident, transaction_id=ident, resolution=resolution)


def together(peer: GrpcPeer, *requests: SendMessageRequest | EndTransactionRequest) -> list[Any]:
    """Make calls in one read. Return their responses, which must not leave before the sync if they are successes."""
    numbers = []
    for request in requests:
        name = "SendMessage" if isinstance(request, SendMessageRequest) else "EndTransaction"
        number = peer.open(name)
        peer.send(number, request, ends=True)
        numbers.append((name, number))
    peer.exchange(disk=False)
    early = [response for name, number in numbers for response in peer.responses(name, number)]
    assert all(response.status.code != Code.OK for response in early), "answered before the sync"
    peer.exchange()
    assert {peer.status(number) for _, number in numbers} == {0}
    return [response for name, number in numbers for response in peer.responses(name, number)]


def bodies(peer: GrpcPeer) -> list[str]:
    """Return the bodies of the first queue, without that of `ready`."""
    return [unpack(entry.content).body.decode() for entry in stored(peer, "t")[0]][1:]


def records(peer: GrpcPeer) -> int:
    """Return the number of records that were written."""
    return peer.server.journal.stats.records


def traffic(peer: GrpcPeer) -> Traffic:
    """Return the counters of what clients have sent."""
    return peer.server.broker.engine.counters.traffic_of("/", "rocketmq-grpc")


@pytest.mark.rule("DUR-1")
def test_normal_messages_are_a_run_and_each_is_answered_with_its_offset() -> None:
    peer = ready()
    before = records(peer)
    found = together(peer, send("a"), send("b"), send("c", tag="x"))
    assert [each.entries[0].message_id for each in found] == ["a", "b", "c"]
    assert [each.entries[0].offset for each in found] == [1, 2, 3]
    assert (bodies(peer), records(peer)) == (["a", "b", "c"], before + 2)
    assert (traffic(peer).received, traffic(peer).confirmed) == (4, 4)


@pytest.mark.rule("HALF-1", "HALF-2")
def test_half_messages_are_one_record_and_so_are_their_commits() -> None:
    peer = ready()
    together(peer, send("x", TRANSACTION))
    before = records(peer)
    found = together(peer, send("a", TRANSACTION), send("b", TRANSACTION), send("c", TRANSACTION))
    assert [each.status.code for each in found] == [Code.OK] * 3
    assert records(peer) == before + 1
    assert (traffic(peer).received, traffic(peer).confirmed) == (5, 1)
    found = together(peer, end("a"), end("b", ROLL_BACK), end("c"))
    assert [each.status.code for each in found] == [Code.OK] * 3
    assert (bodies(peer), records(peer)) == (["a", "c"], before + 3)


def test_messages_keep_the_order_of_sends_and_commits() -> None:
    peer = ready()
    together(peer, send("a", TRANSACTION), send("b", TRANSACTION))
    together(peer, send("1"), end("a"), send("2"), send("c", TRANSACTION), end("b"), send("3"))
    assert bodies(peer) == ["1", "a", "2", "b", "3"]


@pytest.mark.rule("HALF-3")
def test_a_contrary_decision_among_others_is_refused() -> None:
    peer = ready()
    together(peer, send("a", TRANSACTION))
    found = together(peer, end("a"), end("a", ROLL_BACK), end("a"))
    assert [each.status.code for each in found] == [Code.OK, Code.INVALID_TRANSACTION_ID, Code.OK]
    assert bodies(peer) == ["a"]


@pytest.mark.rule("HALF-7")
@pytest.mark.parametrize(
    ("special", "code"),
    [
        (send("x", MessageType.FIFO, message_group="g"), Code.OK),
        (send("", MessageType.NORMAL), Code.MESSAGE_BODY_EMPTY),
        (SendMessageRequest(messages=[message("t", b"x", "x"), message("t", b"y", "y")]), Code.OK),
        (SendMessageRequest(messages=[message("none", b"x", "x")]), Code.TOPIC_NOT_FOUND),
        (end("none"), Code.INVALID_TRANSACTION_ID),
    ],
)
def test_a_call_that_is_handled_by_itself_keeps_its_place(special: Any, code: Code) -> None:
    peer = ready()
    first, second, third = together(peer, send("a"), special, send("b"))
    assert (first.status.code, second.status.code, third.status.code) == (Code.OK, code, Code.OK)
    assert (bodies(peer)[0], bodies(peer)[-1]) == ("a", "b")


@pytest.mark.rule("SEC-1")
def test_each_read_is_checked_against_the_permissions_of_now() -> None:
    peer = ready()
    together(peer, send("a", TRANSACTION))
    user = peer.endpoint._login.user
    peer.server.broker.access.set_permission(user, "/", "", "", "")
    found = together(peer, send("b"), send("c", TRANSACTION))
    assert [each.status.code for each in found] == [Code.FORBIDDEN] * 2
    assert bodies(peer) == []


@pytest.mark.rule("FAIR-3")
def test_a_half_message_beyond_the_limit_is_refused_and_the_others_are_stored() -> None:
    peer = ready()
    peer.server.broker.half.options.per_user = 1
    found = together(peer, send("a", TRANSACTION), send("b", TRANSACTION))
    assert [each.status.code for each in found] == [Code.OK, Code.TOO_MANY_REQUESTS]
    assert [each.entries[0].status.code for each in found] == [Code.OK, Code.TOO_MANY_REQUESTS]


def test_many_bytes_are_written_in_several_records(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = ready()
    before = records(peer)
    monkeypatch.setattr(gathering, "MOST_BYTES", 1)
    together(peer, send("a"), send("b"), send("c"))
    assert (bodies(peer), records(peer)) == (["a", "b", "c"], before + 3)


@pytest.mark.rule("FAIR-3")
def test_first_half_messages_that_arrive_together_while_memory_is_scarce_are_refused() -> None:
    peer = ready()
    peer.server.broker.engine.scarcity = "low on memory"
    first, second = together(peer, send("a", TRANSACTION), send("b", TRANSACTION))
    assert first.status.message == second.status.message
    assert "low on memory" in first.status.message
    peer.server.broker.engine.scarcity = ""
    assert together(peer, send("a", TRANSACTION))[0].status.code == Code.OK
