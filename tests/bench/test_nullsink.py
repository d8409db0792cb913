"""The load tool's own cost."""

from __future__ import annotations

import pytest

from bench.nullsink import cost


@pytest.mark.parametrize("consume", [False, True])
@pytest.mark.parametrize(("varied", "seconds"), [(False, 0.5), (True, 1.0)])
def test_a_million_messages_cost_the_tool_far_less_than_any_broker(consume: bool, varied: bool, seconds: float) -> None:
    _, cpu = cost(400_000, consume=consume, varied=varied)
    assert cpu < seconds
