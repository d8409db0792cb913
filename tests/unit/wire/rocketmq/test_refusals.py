"""Refused logins and calls are logged once for each connection and reason."""

from __future__ import annotations

from typing import Any, cast

import pytest

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.wire.endpoint import Verdict
from escrowmq.wire.rocketmq.options import RocketmqOptions
from escrowmq.wire.rocketmq.proto.definition_pb2 import Code, Resource
from escrowmq.wire.rocketmq.proto.service_pb2 import QueryRouteRequest, SendMessageRequest
from escrowmq.wire.rocketmq.refusals import MOST, NO_ROUTE, Refusals
from escrowmq.wire.rocketmq.remoting.codes import Code as RemotingCode
from escrowmq.wire.rocketmq.remoting.codes import ResultCode
from tests.unit.wire.amqp091.clients import Server, server
from tests.unit.wire.rocketmq.grpc.peer import GrpcPeer, message
from tests.unit.wire.rocketmq.remoting.clients import Client
from tests.unit.wire.rocketmq.test_keys import BEAT, header, made

MISSING = "topic 't' does not exist in vhost '/'; create it by `escrowmq topic create`"


def refusals(found: Server) -> Refusals:
    return Refusals(found, cast("Any", object()))


def reader() -> Server:
    """Return a server whose user for clients without a key may use the virtual host, and write to nothing."""
    found = server()
    found.broker.directory.record_access(found.broker.access.set_permission("guest", "/", "", "", ".*"))
    return found


def test_the_first_refused_login_of_a_connection_is_logged() -> None:
    found = server()
    noted = refusals(found)
    noted.login("k" * 1000, "wrong")
    noted.login("", "wrong")
    assert found.verdicts == [(f"a client with access key '{'k' * 100}'", Verdict(None, "wrong"))]


@pytest.mark.parametrize("condition", [Condition.ACCESS_REFUSED, Condition.NOT_ALLOWED, Condition.LIMIT_EXCEEDED])
def test_each_reason_for_refused_calls_is_logged_once(condition: Condition) -> None:
    found = server()
    noted = refusals(found)
    for text in ("a", "b", "a"):
        noted.call(BrokerError(condition, text))
    assert found.faults == [(condition.value, "a"), (condition.value, "b")]


def test_the_refused_calls_of_a_connection_that_are_logged_are_limited() -> None:
    found = server()
    noted = refusals(found)
    for number in range(2 * MOST):
        noted.call(BrokerError(Condition.ACCESS_REFUSED, str(number)))
    assert len(found.faults) == MOST


def test_other_errors_are_not_logged() -> None:
    found = server()
    refusals(found).call(BrokerError(Condition.NOT_FOUND, "no topic"))
    assert not found.faults


@pytest.mark.parametrize(
    ("automatic", "code", "remedy"),
    [
        (False, "not-found", "create it by `escrowmq topic create`"),
        (True, NO_ROUTE, "the first message of a classic producer creates it"),
    ],
)
def test_a_missing_topic_is_logged_once_with_the_remedy(automatic: bool, code: str, remedy: str) -> None:
    found = server()
    noted = refusals(found)
    for _ in range(2):
        noted.missing("t" * 1000, "/", automatic=automatic)
    assert found.faults == [(code, f"topic '{'t' * 127}' does not exist in vhost '/'; {remedy}")]


def test_a_grpc_client_that_asks_for_a_missing_topic_is_logged_once() -> None:
    found = server()
    peer = GrpcPeer(found)
    for _ in range(2):
        assert peer.run("QueryRoute", QueryRouteRequest(topic=Resource(name="t"))).status.code == Code.TOPIC_NOT_FOUND
    assert found.faults == [("not-found", MISSING)]


@pytest.mark.parametrize(("automatic", "code"), [(True, NO_ROUTE), (False, "not-found")])
def test_a_classic_client_that_asks_for_the_route_of_a_missing_topic_is_logged_once(automatic: bool, code: str) -> None:
    found = server(rocketmq=RocketmqOptions(auto_create=automatic))
    client = Client(found)
    for topic in ("t", "t", "TBW102"):
        client.call(RemotingCode.ROUTE, {"topic": topic})
    assert [logged for logged, _ in found.faults] == [code]


def test_a_classic_producer_that_sends_to_a_missing_topic_is_logged_if_none_is_created() -> None:
    found = server(rocketmq=RocketmqOptions(auto_create=False))
    assert Client(found).publish("t").code == ResultCode.TOPIC_NOT_EXIST
    assert found.faults == [("not-found", MISSING)]


def test_a_classic_consumer_that_pulls_from_a_missing_topic_is_logged() -> None:
    found = server()
    fields = {
        "consumerGroup": "g",
        "topic": "t",
        "queueId": "0",
        "queueOffset": "0",
        "maxMsgNums": "32",
        "sysFlag": "0",
        "commitOffset": "0",
    }
    assert Client(found).call(RemotingCode.PULL, fields).code == ResultCode.TOPIC_NOT_EXIST
    assert found.faults == [("not-found", MISSING)]


def test_a_grpc_client_with_a_wrong_secret_key_is_logged_and_told() -> None:
    found = made()
    peer = GrpcPeer(found)
    for _ in range(3):
        call = peer.begin("Heartbeat", BEAT, **header("key", b"wrong"))
        assert "its signature is wrong" in peer.trailers[call]["grpc-message"]
    assert [(who, verdict.user) for who, verdict in found.verdicts] == [("a client with access key 'key'", None)]


def test_a_login_is_logged_once_for_each_connection() -> None:
    found = made()
    peer = GrpcPeer(found)
    for _ in range(2):
        peer.run("Heartbeat", BEAT, **header("key", b"secret of key"))
    Client(found).call(RemotingCode.ALL_TOPICS)
    assert [verdict.user for _, verdict in found.verdicts] == ["alice", "guest"]


def test_a_grpc_producer_without_permission_is_logged_once_and_told() -> None:
    found = reader()
    peer = GrpcPeer(found)
    peer.topic("orders")
    for _ in range(2):
        answer = peer.run("SendMessage", SendMessageRequest(messages=[message("orders")]))
        assert answer.status.code == Code.FORBIDDEN
        assert "'orders'" in answer.status.message
    assert [(code, "'orders'" in text and "'guest'" in text) for code, text in found.faults] == [
        ("access-refused", True)
    ]


def test_a_classic_producer_without_permission_is_logged_once_and_told() -> None:
    found = reader()
    found.broker.topics.declare(found.broker.directory.vhost("/"), "orders", 1)
    client = Client(found)
    for _ in range(2):
        answer = client.publish("orders")
        assert answer.code == ResultCode.NO_PERMISSION
        assert "'orders'" in (answer.remark or "")
    assert [code for code, _ in found.faults] == ["access-refused"]


def test_a_classic_client_with_an_unknown_key_is_logged_once() -> None:
    found = server()
    client = Client(found)
    for _ in range(2):
        answer = client.call(RemotingCode.ALL_TOPICS, {"AccessKey": "k", "Signature": "x"})
        assert answer.code == ResultCode.NO_PERMISSION
    assert [(who, verdict.user) for who, verdict in found.verdicts] == [("a client with access key 'k'", None)]
    assert not found.faults
