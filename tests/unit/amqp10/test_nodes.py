"""Termini that links ask for."""

from __future__ import annotations

import pytest

from escrowmq.amqp10.nodes import Mode, terminus_of_subscription


@pytest.mark.parametrize(("mode", "durable"), [(None, 1), ("presettled", 1), ("first", 1), ("second", 2)])
def test_a_subscription_asks_for_no_more_than_its_mode_is_granted(mode: Mode | None, durable: int) -> None:
    terminus = terminus_of_subscription(mode)
    assert (terminus.durable, terminus.expiry) == (durable, "never")
