"""Answers that are written octet by octet equal those of the library."""

from __future__ import annotations

import pytest

from escrowmq.wire.rocketmq.grpc.answers import ok
from escrowmq.wire.rocketmq.grpc.publishing import result
from escrowmq.wire.rocketmq.grpc.results import sent_one, varint
from escrowmq.wire.rocketmq.proto.service_pb2 import SendMessageResponse


@pytest.mark.parametrize("ident", ["ID1", "é" * 127, "x" * 255])
@pytest.mark.parametrize("offset", [0, 1, 127, 128, 1 << 40])
def test_the_answer_to_one_message_is_that_of_the_library(ident: str, offset: int) -> None:
    expected = SendMessageResponse(status=ok(), entries=[result(ident, offset)])
    assert sent_one(ident, offset) == expected.SerializeToString()


@pytest.mark.parametrize(
    ("value", "octets"),
    [(0, b"\0"), (127, b"\x7f"), (128, b"\x80\x01"), (300, b"\xac\x02"), (1 << 14, b"\x80\x80\x01")],
)
def test_numbers_have_seven_bits_in_each_octet(value: int, octets: bytes) -> None:
    assert varint(value) == octets
