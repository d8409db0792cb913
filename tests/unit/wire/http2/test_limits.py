"""Patience is a stock that floods use up, and that answers and time refill."""

from __future__ import annotations

import pytest

from escrowmq.wire.http2.limits import RESET, Patience


@pytest.mark.rule("FAIR-3")
def test_patience_ends_with_its_stock() -> None:
    patience = Patience(2 * RESET)
    assert patience.spend(RESET)
    assert patience.spend(RESET)
    assert not patience.spend(1)


def test_time_and_answers_give_back_at_most_the_stock() -> None:
    patience = Patience(20)
    patience.spend(20)
    patience.answered()
    assert patience.spend(RESET)
    for _ in range(5):
        patience.tick()
        patience.sent()
    assert patience.spend(20)
    assert not patience.spend(1)
