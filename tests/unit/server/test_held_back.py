"""The bytes that wait because connections are held back."""

from __future__ import annotations

import pytest

from escrowmq.server.held_back import HeldBack


@pytest.mark.rule("FAIR-3")
def test_one_user_may_have_half_of_the_limit() -> None:
    held = HeldBack(100)
    held.change("ann", 49)
    assert not held.full("ann")
    held.change("ann", 1)
    assert (held.full("ann"), held.full("bob")) == (True, False)
    held.change("bob", 49)
    assert (held.full("ann"), held.full("bob"), held.full("eve")) == (True, False, False)
    held.change("bob", 1)
    assert held.full("eve"), "all together have reached the limit"
    held.change("ann", -50)
    assert (held.full("ann"), held.full("bob")) == (False, True)


def test_bytes_that_were_read_count_no_more() -> None:
    held = HeldBack(100)
    held.change("ann", 70)
    held.change("ann", -70)
    assert (held.bytes, held._of_user) == (0, {})


def test_a_limit_of_0_is_none() -> None:
    held = HeldBack(0)
    held.change("ann", 1 << 40)
    assert not held.full("ann")
