"""The depth and the length of values."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.admin.values import DEEPEST, is_nested, size_of
from escrowmq.wire.amqp091.table import encode_table


def nested(depth: int, *, table: bool) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value} if table else [value]
    return value


@pytest.mark.parametrize("table", [False, True])
def test_only_deeply_nested_values_are_found(table: bool) -> None:
    assert not is_nested(1)
    assert not is_nested([])
    assert not is_nested(nested(DEEPEST, table=table))
    assert is_nested(nested(DEEPEST + 1, table=table))
    assert is_nested([1, nested(5000, table=table)])


@pytest.mark.parametrize(
    "value",
    ["", "ä" * 40, True, None, [], [1, "x", None], {}, {"a": {"b": [True]}}, -5, 127, 40_000, 2**31, 2**62],
)
def test_a_size_is_that_of_the_table_of_a_client_or_less(value: Any) -> None:
    size = size_of({"name": value})
    assert 9 < size <= len(encode_table({"name": value})) + 1
