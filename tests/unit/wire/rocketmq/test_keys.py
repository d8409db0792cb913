"""Clients with an access key act as its user."""

from __future__ import annotations

from typing import Any, cast

import pytest

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.wire.endpoint import Peer
from escrowmq.wire.rocketmq.grpc.status import GrpcStatus
from escrowmq.wire.rocketmq.keys import enter_with_key
from escrowmq.wire.rocketmq.login import RocketmqLogin
from escrowmq.wire.rocketmq.options import RocketmqOptions
from escrowmq.wire.rocketmq.proto.definition_pb2 import Code
from escrowmq.wire.rocketmq.proto.service_pb2 import HeartbeatRequest
from escrowmq.wire.rocketmq.signature import SignedProof, hex_signature
from tests.unit.wire.amqp091.clients import Server, server
from tests.unit.wire.rocketmq.grpc.peer import GrpcPeer

DATE = "20261123T050000Z"
BEAT = HeartbeatRequest()


def made(**options: Any) -> Server:
    found = server(users=("guest", "alice"), **options)
    found.broker.directory.record_access(found.broker.access.add_access_key("alice", "key"))
    return found


def proof(key: str = "key", secret: bytes | None = None) -> SignedProof:
    return SignedProof(b"signed", hex_signature(secret or b"secret of " + key.encode(), b"signed"))


def login(found: Server) -> RocketmqLogin:
    return RocketmqLogin(found, cast("Any", object()), Peer("host", 1), "rocketmq-grpc")


def header(key: str, secret: bytes) -> dict[str, Any]:
    signature = hex_signature(secret, DATE.encode()).upper()
    text = f"MQv2-HMAC-SHA1 Credential={key}, SignedHeaders=x-mq-date-time, Signature={signature}"
    return {"authorization": text, "x_mq_date_time": DATE}


def test_a_client_with_a_key_is_its_user() -> None:
    found = made()
    entered = login(found)
    enter_with_key(found, entered, "key", proof())
    enter_with_key(found, entered, "key", proof())
    assert entered.user == "alice"


@pytest.mark.rule("SEC-1")
@pytest.mark.parametrize(
    ("key", "given"),
    [("key", proof(secret=b"wrong")), ("key", None), ("none", proof("none")), ("alice", proof("alice"))],
)
def test_wrong_keys_and_wrong_signatures_have_the_same_answer(key: str, given: SignedProof | None) -> None:
    found = made()
    with pytest.raises(BrokerError) as caught:
        enter_with_key(found, login(found), key, given)
    assert caught.value.condition is Condition.ACCESS_REFUSED
    assert caught.value.text == "the access key is unknown, or its signature is wrong"


@pytest.mark.rule("SEC-2")
def test_a_connection_keeps_the_user_of_its_first_call() -> None:
    peer = GrpcPeer(made())
    signed = header("key", b"secret of key")
    assert peer.run("Heartbeat", BEAT, **signed).status.code == Code.OK
    assert peer.endpoint.describe()["user"] == "alice"
    assert peer.status(peer.begin("Heartbeat", BEAT)) == GrpcStatus.UNAUTHENTICATED
    assert peer.status(peer.begin("Heartbeat", BEAT, **header("key", b"wrong"))) == GrpcStatus.UNAUTHENTICATED
    assert peer.run("Heartbeat", BEAT, **signed).status.code == Code.OK


def test_only_clients_with_a_key_may_come_in() -> None:
    found = made(rocketmq=RocketmqOptions(anonymous_user=""))
    peer = GrpcPeer(found)
    assert peer.status(peer.begin("Heartbeat", BEAT)) == GrpcStatus.UNAUTHENTICATED
    assert GrpcPeer(found).run("Heartbeat", BEAT, **header("key", b"secret of key")).status.code == Code.OK


def test_a_deleted_key_is_unknown() -> None:
    found = made()
    found.broker.access.remove_access_key("alice", "key")
    peer = GrpcPeer(found)
    assert peer.status(peer.begin("Heartbeat", BEAT, **header("key", b"secret of key"))) == GrpcStatus.UNAUTHENTICATED
