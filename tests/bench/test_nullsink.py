"""What the load tool costs by itself."""

from __future__ import annotations

import pytest

from bench.nullsink import cost


@pytest.mark.parametrize("consume", [False, True])
def test_a_million_messages_cost_the_tool_far_less_than_a_second(consume: bool) -> None:
    _, cpu = cost(400_000, consume=consume)
    assert cpu < 0.5
