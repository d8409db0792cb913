"""Bodies of requests and responses."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from escrowmq.core.records.changes import Timestamp as Moment
from escrowmq.wire.amqp10.codec.types import (
    Array,
    Byte,
    Decimal32,
    Described,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    Value,
)
from escrowmq.wire.amqp10.management.fields import checked_name, sent
from escrowmq.wire.amqp10.management.requests import Problem
from tests.unit.wire.amqp10.codec.strategies import values
from tests.unit.wire.amqp10.management.manager import Manager


@pytest.fixture
def manager() -> Manager:
    return Manager()


@pytest.mark.parametrize(
    "body",
    [
        None,
        "text",
        [],
        {1: True},
        {"durable": "yes"},
        {"durable": 1},
        {"arguments": []},
        {"arguments": {1: 2}},
        {"arguments": {"x": Described(ULong(1), 2)}},
        {"arguments": {"x": Decimal32(b"1234")}},
        {"colour": "red"},
    ],
)
def test_a_bad_body_is_refused(manager: Manager, body: Value) -> None:
    answer = manager.ask("PUT", "/queues/q", body)
    assert answer.code == 400
    assert "queue" in answer.body
    assert manager.code("GET", "/queues/q") == 404


def test_a_large_body_is_refused(manager: Manager) -> None:
    answer = manager.ask("PUT", "/queues/q", {"arguments": {"x-note": "a" * 17_000}})
    assert answer.code == 400
    assert "16384 bytes" in answer.body


NAMES = st.sampled_from(
    ["durable", "exclusive", "arguments", "type", "source", "destination_queue", "destination_exchange", "binding_key"]
)
ARGUMENTS = st.sampled_from(
    ["x-max-length", "x-queue-type", "x-dead-letter-exchange", "alternate-exchange", "x-match", "x-max-age", "x-note"]
)
BODIES = st.dictionaries(NAMES, st.one_of(values, st.dictionaries(ARGUMENTS, values, max_size=3), st.just("q")))
PATHS = ["/queues/q", "/exchanges/e", "/bindings", "/bindings?src=amq.topic&dstq=q", "/auth/tokens"]


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(["GET", "PUT", "POST", "DELETE"]), st.sampled_from(PATHS), st.one_of(values, BODIES))
def test_any_body_is_answered(method: str, path: str, body: Value) -> None:
    manager = Manager()
    assert 200 <= manager.code(method, path, body) < 500


@pytest.mark.parametrize("number", [100, UInt(100), ULong(100), UByte(100), Byte(100)])
def test_integers_of_any_width_are_alike(manager: Manager, number: int) -> None:
    assert manager.code("PUT", "/queues/q", {"arguments": {"x-max-length": number}}) == 201
    assert manager.code("PUT", "/queues/q", {"arguments": {"x-max-length": 100}}) == 200


def test_symbols_are_texts(manager: Manager) -> None:
    body = {Symbol("arguments"): {Symbol("x-queue-type"): Symbol("quorum")}}
    assert manager.ask("PUT", "/queues/q", body).body["type"] == "quorum"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (7, 7),
        (2**64 - 1, ULong(2**64 - 1)),
        (1.5, 1.5),
        ("ü", "ü"),
        ("\ud800", "?"),
        (b"\xff", b"\xff"),
        (Moment(3), Timestamp(3000)),
        (Decimal("1.5"), "1.5"),
        ([1, ("a",)], [1, ["a"]]),
        ({"a": {"b": Array([1])}}, {"a": {"b": [1]}}),
    ],
)
def test_arguments_of_every_protocol_can_be_sent(value: Any, expected: Any) -> None:
    found = sent(value)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize("name", ["a\nb", "a\rb", "ü" * 128])
def test_names_have_no_line_ends_and_at_most_255_bytes(name: str) -> None:
    with pytest.raises(Problem):
        checked_name(name, "queue")


def test_other_names_are_permitted() -> None:
    assert checked_name("a/b %" + "ü" * 120, "queue")
