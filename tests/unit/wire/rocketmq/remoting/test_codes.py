"""The numbers of requests and results."""

from __future__ import annotations

from escrowmq.wire.rocketmq.remoting.codes import Code, ResultCode


def test_the_numbers_are_those_of_rocketmq() -> None:
    assert (Code.SEND_V2, Code.END_TRANSACTION, Code.CHECK_TRANSACTION, Code.ROUTE) == (310, 37, 39, 105)
    assert (ResultCode.TOPIC_NOT_EXIST, ResultCode.PULL_OFFSET_MOVED) == (17, 21)
