"""The frames of a broker, as the load tool reads them."""

from __future__ import annotations

import pytest

from escrowmq.perf.errors import PerfError
from escrowmq.perf.rocketmq.remoting.answers import RemotingAnswer, answers
from escrowmq.wire.rocketmq.remoting.frames import BINARY, ONE_WAY, RESPONSE, Command, encode


def read(data: bytes) -> tuple[list[RemotingAnswer], int]:
    """Return the answers in `data`, and how many bytes they take."""
    used = [0]
    return list(answers(bytearray(data), len(data), used)), used[0]


def test_an_answer_is_told_by_its_number() -> None:
    data = encode(Command(0, {"queueId": "3"}, b"body", 1_000_000_007, RESPONSE))
    (found,), used = read(data + data[:-1])
    assert (found.opaque, found.code, found.is_response, found.body) == (1_000_000_007, 0, True, b"body")
    assert found.fields == {"queueId": "3"}
    assert used == len(data)


def test_a_refusal_has_its_reason() -> None:
    (found,), _ = read(encode(Command(17, remark="no such topic", opaque=1, flag=RESPONSE)))
    assert (found.code, found.remark) == (17, "no such topic")


def test_a_request_of_the_broker_is_no_response() -> None:
    (found,), _ = read(encode(Command(39, {"msgId": "A"}, opaque=5, flag=ONE_WAY)))
    assert (found.code, found.is_response) == (39, False)


@pytest.mark.parametrize(
    "data",
    [encode(Command(0, flag=RESPONSE, form=BINARY)), b"HTTP/1.1 400 Bad Request\r\n", b"\0\0\0\x08\0\0\0\x04{}{}"],
    ids=["binary header", "HTTP", "not a header"],
)
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(PerfError, match="the broker sent"):
        read(data)
