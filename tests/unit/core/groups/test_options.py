"""Options of consumer groups."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.groups.options import GroupOptions, options_of


@pytest.mark.parametrize(
    "options",
    [
        {"max_attempts": 0},
        {"max_attempts": 1001},
        {"back_off_ms": ()},
        {"back_off_ms": (-1,)},
        {"back_off_ms": (1,) * 101},
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(BrokerError, match="consumer group 'g'") as caught:
        GroupOptions(**options).check("g")
    assert caught.value.condition is Condition.INVALID_ARGUMENT


def test_the_last_back_off_counts_for_all_further_attempts() -> None:
    options = GroupOptions(back_off_ms=(5, 10))
    assert [options.back_off(attempts) for attempts in (0, 1, 2, 3)] == [5, 5, 10, 10]


def test_options_come_back_from_their_record() -> None:
    options = GroupOptions(True, 3, (1, 2), "dead")
    options.check("g")
    assert options_of(options.fields()) == options
