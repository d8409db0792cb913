"""Messages of producers are checked, and stored with the properties that clients of both generations know."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from escrowmq.wire.rocketmq.content import TRANSACTION_COMMITTED, unpack
from escrowmq.wire.rocketmq.grpc.answers import RocketmqRefusal
from escrowmq.wire.rocketmq.grpc.incoming import LONGEST_DELAY_MS, read_message, timestamp_ms
from escrowmq.wire.rocketmq.grpc.settings import LARGEST_BODY, duration
from escrowmq.wire.rocketmq.properties import parse
from escrowmq.wire.rocketmq.proto.definition_pb2 import Code, Encoding, Message, MessageType
from tests.unit.wire.rocketmq.grpc.peer import message

NOW = 1_700_000_000_000


def read(given: Message) -> dict[str, str]:
    return parse(unpack(read_message(given, "t", NOW).content()).properties)


def test_a_normal_message() -> None:
    given = message("t", tag="a", keys=["k1", "k2"], properties={"x": "y"}, born_timestamp=Timestamp(seconds=5))
    found = read_message(given, "t", NOW)
    content = unpack(found.content(3))
    assert (content.body, content.queue, content.born_ms, content.system_flag) == (b"body", 3, 5000, 0)
    expected = {"x": "y", "TAGS": "a", "KEYS": "k1 k2", "UNIQ_KEY": "ID1", "WAIT": "true"}
    assert parse(content.properties) == expected
    assert found.tag == "a"


def test_a_message_of_a_group_has_its_key() -> None:
    assert read(message("t", kind=MessageType.FIFO, message_group="g"))["__SHARDINGKEY"] == "g"


def test_a_delayed_message_has_its_time() -> None:
    due = Timestamp(seconds=NOW // 1000 + 60)
    assert read(message("t", kind=MessageType.DELAY, delivery_timestamp=due))["TIMER_DELIVER_MS"] == str(NOW + 60_000)


@pytest.mark.rule("HALF-8")
def test_a_transactional_message_is_stored_as_consumers_get_it_and_without_a_delay() -> None:
    given = message(
        "t",
        kind=MessageType.TRANSACTION,
        delivery_timestamp=Timestamp(seconds=NOW),
        orphaned_transaction_recovery_duration=duration(9000),
    )
    found = read(given)
    assert found.keys().isdisjoint({"TIMER_DELIVER_MS", "DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS"})
    assert (found["TRAN_MSG"], found["PGROUP"], found["__transactionId__"]) == ("true", "t", "ID1")
    incoming = read_message(given, "t", NOW)
    assert incoming.immunity_ms == 9000
    assert unpack(incoming.content()).system_flag == TRANSACTION_COMMITTED


def test_a_compressed_body_is_stored_plain() -> None:
    given = message("t", gzip.compress(b"hello"))
    given.system_properties.body_encoding = Encoding.GZIP
    assert read_message(given, "t", NOW).body == b"hello"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"ident": ""}, Code.ILLEGAL_MESSAGE_ID),
        ({"ident": "a\x01b"}, Code.ILLEGAL_MESSAGE_ID),
        ({"ident": "a" * 256}, Code.ILLEGAL_MESSAGE_ID),
        ({"body": b""}, Code.MESSAGE_BODY_EMPTY),
        ({"body": bytes(LARGEST_BODY + 1)}, Code.MESSAGE_BODY_TOO_LARGE),
        ({"tag": " "}, Code.ILLEGAL_MESSAGE_TAG),
        ({"tag": "\U0001f600" * 127}, Code.ILLEGAL_MESSAGE_TAG),
        ({"tag": "a||b"}, Code.ILLEGAL_MESSAGE_TAG),
        ({"tag": "a\nb"}, Code.ILLEGAL_MESSAGE_TAG),
        ({"keys": [" "]}, Code.ILLEGAL_MESSAGE_KEY),
        ({"keys": ["a\x02"]}, Code.ILLEGAL_MESSAGE_KEY),
        ({"kind": MessageType.FIFO}, Code.ILLEGAL_MESSAGE_GROUP),
        ({"kind": MessageType.FIFO, "message_group": "g" * 64}, Code.ILLEGAL_MESSAGE_GROUP),
        ({"message_group": "g"}, Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        ({"kind": MessageType.TRANSACTION, "message_group": "g"}, Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        ({"properties": {"TAGS": "a"}}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ({"properties": {"a": "b\x01"}}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ({"properties": {str(i): "" for i in range(129)}}, Code.MESSAGE_PROPERTIES_TOO_LARGE),
        ({"properties": {"a": "b" * 17_000}}, Code.MESSAGE_PROPERTIES_TOO_LARGE),
        ({"kind": MessageType.DELAY}, Code.ILLEGAL_DELIVERY_TIME),
        (
            {
                "kind": MessageType.DELAY,
                "delivery_timestamp": Timestamp(seconds=(NOW + LONGEST_DELAY_MS) // 1000 + 1),
            },
            Code.ILLEGAL_DELIVERY_TIME,
        ),
        ({"kind": MessageType.LITE}, Code.BAD_REQUEST),
        ({"kind": MessageType.MESSAGE_TYPE_UNSPECIFIED}, Code.BAD_REQUEST),
    ],
)
def test_faults_have_their_codes(fields: dict[str, Any], code: Code) -> None:
    with pytest.raises(RocketmqRefusal) as caught:
        read_message(message("t", **fields), "t", NOW)
    assert caught.value.status.code == code


def test_times() -> None:
    assert timestamp_ms(Timestamp()) is None
    assert timestamp_ms(Timestamp(seconds=1, nanos=2_000_000)) == 1002
    assert timestamp_ms(Timestamp(seconds=-5)) == 0


def test_a_time_of_birth_that_cannot_be_stored_is_that_of_the_arrival() -> None:
    given = message("t", born_timestamp=Timestamp(seconds=2**63 - 1))
    assert read_message(given, "t", NOW).born_ms == NOW


@pytest.mark.parametrize(
    ("body", "code"),
    [(b"no gzip", Code.MESSAGE_CORRUPTED), (gzip.compress(bytes(8 << 20)), Code.MESSAGE_BODY_TOO_LARGE)],
)
def test_a_compressed_body_that_cannot_be_read_concerns_its_message_only(body: bytes, code: Code) -> None:
    given = message("t", body)
    given.system_properties.body_encoding = Encoding.GZIP
    with pytest.raises(RocketmqRefusal) as refused:
        read_message(given, "t", NOW)
    assert refused.value.status.code == code
