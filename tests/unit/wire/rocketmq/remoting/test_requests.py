"""The table of requests."""

from __future__ import annotations

import pytest

from escrowmq.wire.rocketmq.remoting.codes import Code, ResultCode
from escrowmq.wire.rocketmq.remoting.requests import HANDLERS
from tests.unit.wire.rocketmq.remoting.clients import Client, server

OWN = {Code.CHECK_TRANSACTION, Code.CONSUMERS_CHANGED}
"""Requests that the broker sends."""


def test_requests_of_the_broker_are_not_accepted() -> None:
    assert not OWN & HANDLERS.keys()


@pytest.mark.parametrize(
    ("code", "text"), [(200050, "pop consumption is"), (325, "replies to requests"), (9999, "it is not supported")]
)
def test_a_request_that_is_not_served_is_refused_with_a_reason(code: int, text: str) -> None:
    client = Client(server())
    answer = client.call(code)
    assert answer.code == ResultCode.NOT_SUPPORTED
    assert (answer.remark or "").startswith(f"request code {code}: {text}")
    assert code not in HANDLERS


@pytest.mark.parametrize("code", sorted(HANDLERS))
def test_a_request_without_fields_is_answered(code: int) -> None:
    client = Client(server())
    assert client.call(code).code in set(ResultCode)
    assert not client.port.closed
