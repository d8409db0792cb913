"""Every condition of the core has a code."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.wire.rocketmq.grpc.answers import CODES, RocketmqRefusal, milliseconds, ok, refusal
from escrowmq.wire.rocketmq.proto.definition_pb2 import Code


def test_every_condition_has_a_code_that_is_an_error() -> None:
    assert set(CODES) == set(Condition)
    assert all(code >= Code.BAD_REQUEST for code in CODES.values())


def test_refusals_have_code_and_text() -> None:
    found = refusal(BrokerError(Condition.LIMIT_EXCEEDED, "too many"))
    assert (found.code, found.message) == (Code.TOO_MANY_REQUESTS, "too many")
    assert RocketmqRefusal(Code.ILLEGAL_TOPIC, "x").status.code == Code.ILLEGAL_TOPIC
    assert ok().code == Code.OK


def test_durations() -> None:
    assert milliseconds(Duration(seconds=2, nanos=5_000_000)) == 2005
