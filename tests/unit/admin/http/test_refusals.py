"""Refusals of the broker over HTTP."""

from __future__ import annotations

import pytest

from escrowmq.admin.http.broker import BrokerRefused
from escrowmq.admin.http.refusals import refusal
from escrowmq.core.conditions import Condition

STATUS = {
    Condition.NOT_FOUND: 404,
    Condition.ACCESS_REFUSED: 401,
    Condition.NOT_ALLOWED: 401,
    Condition.UNAVAILABLE: 503,
}


@pytest.mark.parametrize("condition", Condition)
def test_every_condition_has_a_status_and_its_text(condition: Condition) -> None:
    found = refusal(BrokerRefused("text", condition=condition.value))
    assert found.status == STATUS.get(condition, 400)
    assert found.reason.endswith("text")


def test_a_reason_begins_with_the_reply_of_amqp() -> None:
    found = refusal(BrokerRefused("text", condition="precondition-failed"))
    assert found == (400, "bad_request", "406 PRECONDITION_FAILED - text")
    assert refusal(BrokerRefused("text")) == (400, "bad_request", "text")
    assert refusal(BrokerRefused("text", missing=True)) == (404, "Object Not Found", "text")


def test_a_missing_permission_to_publish_is_a_bad_request() -> None:
    found = refusal(BrokerRefused("text", condition="access-refused"), publishing=True)
    assert found == (400, "bad_request", "403 ACCESS_REFUSED - text")
