"""Every value that a broker can have becomes an answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from escrowmq.admin.http.answers import JsonAnswer
from tests.unit.admin.http.sites import HttpSite
from tests.unit.wire.amqp091.clients import pair


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("\ud800", "\ud800"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        ([{"a": float("-inf")}, "ü"], [{"a": "-inf"}, "ü"]),
        (1.5, 1.5),
        (10**400, 10**400),
    ],
)
def test_a_value_that_json_or_utf8_has_not_is_answered(value: Any, shown: Any) -> None:
    assert json.loads(bytes(JsonAnswer({"x": value}).body)) == {"x": shown}


def test_an_odd_argument_of_one_queue_leaves_the_lists_readable() -> None:
    made, client = pair()
    client.declare(1, "odd", arguments={"x-odd": float("nan")})
    site = HttpSite(made)
    for path in ("queues", "queues/%2F/odd", "definitions", "definitions/%2F"):
        answer = site.get(f"/api/{path}")
        assert (answer.status, b'"x-odd":"nan"' in answer.body) == (200, True)
