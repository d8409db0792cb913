"""The depth of values."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.admin.values import DEEPEST, is_nested


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
