"""Transactions over gRPC: half messages, decisions in any order, and checks over the telemetry stream."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.wire.rocketmq.content import unpack
from escrowmq.wire.rocketmq.proto.definition_pb2 import (
    ClientType,
    Code,
    MessageType,
    Publishing,
    Resource,
    Settings,
    TransactionResolution,
)
from escrowmq.wire.rocketmq.proto.service_pb2 import EndTransactionRequest, SendMessageRequest, TelemetryCommand
from tests.unit.wire.rocketmq.grpc.peer import GrpcPeer, message, server
from tests.unit.wire.rocketmq.grpc.test_publishing import stored

COMMIT, ROLL_BACK = TransactionResolution.COMMIT, TransactionResolution.ROLLBACK
UNKNOWN = TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED
TOPIC = Resource(name="tx")


def begun(**options: Any) -> GrpcPeer:
    peer = GrpcPeer(server(**options))
    peer.topic("tx", "transaction")
    return peer


def send(peer: GrpcPeer, ident: str = "ID1", body: bytes = b"body") -> Any:
    sent = message("tx", body, ident, MessageType.TRANSACTION)
    return peer.run("SendMessage", SendMessageRequest(messages=[sent])).entries[0]


def end(peer: GrpcPeer, resolution: TransactionResolution, ident: str = "ID1", **fields: Any) -> int:
    request = EndTransactionRequest(
        topic=fields.get("topic", TOPIC),
        message_id=fields.get("message_id", ident),
        transaction_id=ident,
        resolution=resolution,
    )
    return int(peer.run("EndTransaction", request).status.code)


def bodies(peer: GrpcPeer) -> list[bytes]:
    return [unpack(entry.content).body for entries in stored(peer, "tx") for entry in entries]


def telemetry(peer: GrpcPeer) -> int:
    number = peer.open("Telemetry")
    settings = Settings(client_type=ClientType.PRODUCER, publishing=Publishing(topics=[TOPIC]))
    peer.send(number, TelemetryCommand(settings=settings))
    peer.exchange()
    return number


def checks(peer: GrpcPeer, number: int) -> list[Any]:
    return [
        command.recover_orphaned_transaction_command
        for command in peer.responses("Telemetry", number)
        if command.WhichOneof("command") == "recover_orphaned_transaction_command"
    ]


@pytest.mark.rule("HALF-1", "HALF-2")
@pytest.mark.parametrize(("resolution", "expected"), [(COMMIT, [b"body"]), (ROLL_BACK, []), (UNKNOWN, [])])
def test_a_half_message_is_delivered_by_its_commit_only(
    resolution: TransactionResolution, expected: list[bytes]
) -> None:
    peer = begun()
    entry = send(peer)
    assert (entry.status.code, entry.message_id, entry.transaction_id) == (Code.OK, "ID1", "ID1")
    assert bodies(peer) == []
    assert end(peer, resolution) == Code.OK
    assert bodies(peer) == expected


@pytest.mark.rule("HALF-3")
@pytest.mark.parametrize("first", [COMMIT, ROLL_BACK])
@pytest.mark.parametrize("second", [COMMIT, ROLL_BACK])
def test_a_second_decision_has_no_effect(first: TransactionResolution, second: TransactionResolution) -> None:
    peer = begun()
    send(peer)
    end(peer, first)
    expected = Code.OK if first == second else Code.INVALID_TRANSACTION_ID
    assert end(peer, second) == expected
    assert len(bodies(peer)) == (first == COMMIT)


@pytest.mark.rule("HALF-11")
def test_a_half_message_that_is_sent_again_is_the_same_transaction() -> None:
    peer = begun()
    send(peer)
    assert send(peer).status.code == Code.OK
    end(peer, COMMIT)
    assert send(peer).status.code == Code.OK
    assert end(peer, COMMIT) == Code.OK
    assert bodies(peer) == [b"body"]


@pytest.mark.rule("HALF-12")
@pytest.mark.parametrize(
    "fields",
    [
        {"ident": "ID2"},
        {"ident": ""},
        {"message_id": "ID2"},
        {"topic": Resource(name="other")},
    ],
)
def test_a_decision_that_names_no_known_transaction_is_refused(fields: dict[str, Any]) -> None:
    peer = begun()
    send(peer)
    fields = {"message_id": "ID1"} | fields if fields.get("ident") != "ID2" else fields
    assert end(peer, COMMIT, **fields) == Code.INVALID_TRANSACTION_ID
    assert bodies(peer) == []


def test_a_decision_names_its_message() -> None:
    assert end(begun(), COMMIT, message_id="") == Code.ILLEGAL_MESSAGE_ID


@pytest.mark.rule("HALF-4", "HALF-5")
def test_an_undecided_message_is_checked_over_the_stream_of_its_producer() -> None:
    peer = begun()
    number = telemetry(peer)
    send(peer)
    peer.server.after(5_000)
    peer.exchange()
    assert checks(peer, number) == []
    peer.server.after(2_000)
    peer.exchange()
    (check,) = checks(peer, number)
    assert (check.transaction_id, check.message.body) == ("ID1", b"body")
    assert check.message.system_properties.message_id == "ID1"
    assert check.message.system_properties.body_digest.checksum
    assert end(peer, COMMIT) == Code.OK
    assert bodies(peer) == [b"body"]


@pytest.mark.rule("HALF-5")
def test_a_check_counts_only_when_a_stream_is_there() -> None:
    peer = begun()
    send(peer)
    peer.server.after(600_000)
    half = peer.server.broker.half.named("/", "tx", "ID1")
    assert half is not None
    assert half.checks == 0
    number = telemetry(peer)
    peer.server.after(60_000)
    peer.exchange()
    assert len(checks(peer, number)) >= 1


def test_a_stream_that_opens_after_the_send_gets_the_checks() -> None:
    peer = begun()
    send(peer)
    number = peer.open("Telemetry")
    peer.exchange()
    peer.server.after(10_000)
    peer.exchange()
    assert len(checks(peer, number)) == 1


def test_another_producer_of_the_topic_is_asked_when_the_first_is_gone() -> None:
    peer = begun()
    telemetry(peer)
    send(peer)
    other = GrpcPeer(peer.server, "client-2")
    number = telemetry(other)
    peer.end()
    peer.server.after(10_000)
    other.exchange()
    assert len(checks(other, number)) == 1


@pytest.mark.rule("HALF-5")
def test_a_client_that_reads_nothing_gets_no_more_checks_than_its_window_takes() -> None:
    peer = begun()
    number = telemetry(peer)
    send(peer, body=bytes(100_000))
    peer.server.after(7_000)
    peer.server.end_turn()
    endpoint = peer.endpoint
    assert endpoint._session is not None
    client = endpoint._session.clients["client-1"]
    assert client.telemetry is not None
    assert not client.telemetry.writable
    half = peer.server.broker.half.named("/", "tx", "ID1")
    assert half is not None
    assert not client.check(half)
    peer.exchange()
    assert len(checks(peer, number)) == 1


@pytest.mark.rule("SEC-1")
def test_a_user_without_the_right_neither_stores_nor_decides() -> None:
    peer = begun(users=("guest", "other"))
    send(peer)
    peer.server.broker.access.set_permission("guest", "/", ".*", "^$", ".*")
    assert send(peer, "ID2").status.code == Code.FORBIDDEN


@pytest.mark.rule("HALF-3")
@pytest.mark.parametrize(("first", "expected"), [(COMMIT, [b"body"]), (ROLL_BACK, [])])
def test_two_producers_that_answer_one_check_decide_once(first: TransactionResolution, expected: list[bytes]) -> None:
    peer = begun()
    telemetry(peer)
    send(peer)
    other = GrpcPeer(peer.server, "client-2")
    telemetry(other)
    peer.server.after(10_000)
    second = ROLL_BACK if first == COMMIT else COMMIT
    assert end(other, first) == Code.OK
    assert end(peer, second) == Code.INVALID_TRANSACTION_ID
    assert end(peer, first) == Code.OK
    assert bodies(peer) == expected


@pytest.mark.rule("HALF-2", "HALF-3")
@pytest.mark.parametrize("disk", [False, True])
def test_a_commit_that_races_with_a_check_and_a_kill_delivers_once(disk: bool) -> None:
    """The broker is killed after the commit has arrived: before its record is on disk, or after that."""
    peer = begun()
    number = telemetry(peer)
    send(peer)
    peer.server.after(10_000)
    peer.exchange()
    assert len(checks(peer, number)) == 1
    commit = EndTransactionRequest(topic=TOPIC, message_id="ID1", transaction_id="ID1", resolution=COMMIT)
    call = peer.begin("EndTransaction", commit, disk=disk)
    assert peer.status(call) == (0 if disk else None)
    storage = peer.server.storage
    storage.crash()
    again = GrpcPeer(server(storage=storage), "client-2")
    telemetry(again)
    assert bodies(again) == ([b"body"] if disk else [])
    assert end(again, COMMIT) == Code.OK
    assert end(again, ROLL_BACK) == Code.INVALID_TRANSACTION_ID
    assert bodies(again) == [b"body"]
