"""A receive that is repeated gets the answer that was lost."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.wire.rocketmq.grpc.attempts import LONGEST_ID, MOST, ReceiveAttempts, ReceiveSource
from escrowmq.wire.rocketmq.proto.definition_pb2 import Code, Resource
from escrowmq.wire.rocketmq.proto.service_pb2 import AckMessageEntry, AckMessageRequest
from tests.unit.wire.rocketmq.grpc.peer import GrpcPeer
from tests.unit.wire.rocketmq.grpc.test_receiving import begun, bodies, poll, received, send


def receipts(peer: GrpcPeer, number: int) -> list[str]:
    return [each.system_properties.receipt_handle for each in received(peer, number)]


def acknowledge(peer: GrpcPeer, *handles: str) -> list[int]:
    entries = [AckMessageEntry(message_id="x", receipt_handle=handle) for handle in handles]
    answer: Any = peer.run("AckMessage", AckMessageRequest(group=Resource(name="g"), entries=entries))
    return [each.status.code for each in answer.entries]


@pytest.mark.rule("GRP-1")
@pytest.mark.parametrize("renewed", [False, True])
def test_a_repeated_receive_gets_the_same_messages_under_new_receipts(renewed: bool) -> None:
    peer = begun()
    send(peer, b"1", b"2")
    lost = poll(peer, attempt_id="A", auto_renew=renewed)
    again = poll(peer, attempt_id="A", auto_renew=renewed)
    assert bodies(peer, again) == bodies(peer, lost) == [b"1", b"2"]
    assert {each.system_properties.delivery_attempt for each in received(peer, again)} == {1}
    assert acknowledge(peer, *receipts(peer, lost)) == [Code.INVALID_RECEIPT_HANDLE] * 2
    assert acknowledge(peer, *receipts(peer, again)) == [Code.OK] * 2


def test_another_attempt_gets_nothing_of_an_answer() -> None:
    peer = begun()
    send(peer, b"1")
    poll(peer, attempt_id="A")
    for ident in ("B", "A", ""):
        assert not received(peer, poll(peer, attempt_id=ident)), "each receive shows that the answer before it arrived"


def test_a_repeated_receive_gets_no_message_that_was_acknowledged() -> None:
    peer = begun()
    send(peer, b"1", b"2")
    first = poll(peer, attempt_id="A")
    acknowledge(peer, receipts(peer, first)[0])
    assert len(received(peer, poll(peer, attempt_id="A"))) == 1


def test_other_clients_get_nothing_of_an_answer() -> None:
    peer = begun()
    send(peer, b"1")
    poll(peer, attempt_id="A")
    other = GrpcPeer(peer.server, "client-2")
    assert not received(other, poll(other, attempt_id="A"))


@pytest.mark.rule("FAIR-3")
def test_the_answers_that_are_kept_are_bounded() -> None:
    attempts = ReceiveAttempts()
    for queue in range(MOST + 10):
        attempts.keep(ReceiveSource("g", "t", queue), "A", [])
    assert len(attempts._answers) == MOST
    attempts.keep(ReceiveSource("g", "t", 1), "A" * (LONGEST_ID + 1), [])
    assert ReceiveSource("g", "t", 1) not in attempts._answers
