"""Patience is a stock that floods use up, and that answers and time refill."""

from __future__ import annotations

import pytest

from escrowmq.wire.http2.frames import ErrorCode, Http2Fault
from escrowmq.wire.http2.limits import RESET, Patience


@pytest.mark.rule("FAIR-3")
def test_patience_ends_with_its_stock() -> None:
    patience = Patience(2 * RESET)
    patience.spend(RESET)
    patience.spend(RESET)
    with pytest.raises(Http2Fault) as raised:
        patience.spend(1)
    assert raised.value.code == ErrorCode.ENHANCE_YOUR_CALM


def test_time_and_answers_give_back_at_most_the_stock() -> None:
    patience = Patience(20)
    patience.spend(20)
    patience.answered()
    patience.spend(RESET)
    for _ in range(5):
        patience.tick()
        patience.sent()
    patience.spend(20)
    with pytest.raises(Http2Fault):
        patience.spend(1)
