"""The requests of the load over gRPC."""

from __future__ import annotations

import pytest

from escrowmq.perf.errors import PerfError
from escrowmq.perf.messages import LoadMessage
from escrowmq.perf.rocketmq.grpc.requests import check, end_request, send_request
from escrowmq.wire.rocketmq.proto.definition_pb2 import Code, MessageType, Status, TransactionSource
from escrowmq.wire.rocketmq.proto.service_pb2 import EndTransactionRequest, SendMessageRequest


@pytest.mark.parametrize(("transactional", "kind"), [(False, MessageType.NORMAL), (True, MessageType.TRANSACTION)])
def test_a_send_has_id_key_and_type(transactional: bool, kind: MessageType) -> None:
    message = LoadMessage(b"body", message_id="key", headers={"sequence": 1})
    data = send_request(message, "T", "id", transactional=transactional)
    (found,) = SendMessageRequest.FromString(data).messages
    system = found.system_properties
    assert (found.topic.name, found.body, dict(found.user_properties)) == ("T", b"body", {"sequence": "1"})
    assert (system.message_id, list(system.keys), system.message_type) == ("id", ["key"], kind)


def test_a_commit_says_whether_it_answers_a_check() -> None:
    found = EndTransactionRequest.FromString(end_request("T", "id", "transaction", from_check=True))
    assert found.source == TransactionSource.SOURCE_SERVER_CHECK


def test_a_refusal_ends_the_run() -> None:
    with pytest.raises(PerfError, match=r"producer 0.*no such topic"):
        check(Status(code=Code.TOPIC_NOT_FOUND, message="no such topic"), "producer 0")
