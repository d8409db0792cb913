"""The results of handlers."""

from __future__ import annotations

from escrowmq.wire.rocketmq.remoting.codes import ResultCode
from escrowmq.wire.rocketmq.remoting.reply import success


def test_a_success_has_fields_a_body_and_an_lsn() -> None:
    reply = success({"a": "b"}, b"body", after=7)
    assert (reply.response.code, reply.response.fields, reply.response.body) == (
        ResultCode.SUCCESS,
        {"a": "b"},
        b"body",
    )
    assert reply.after == 7
