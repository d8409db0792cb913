"""The orders in which messages are offered."""

from __future__ import annotations

import pytest

from escrowmq.core.groups.orders import AnyOrder, Lanes, Order


@pytest.mark.parametrize("order", [AnyOrder(), Lanes()], ids=["any order", "lanes"])
def test_a_position_is_taken_once_until_it_is_given_back(order: Order) -> None:
    order.add(5, "a")
    assert [order.ready, order.take(9), order.ready] == [True, [5], False]
    assert order.take(9) == []
    order.give_back(5)
    order.give_back(5)
    assert order.take(9) == [5]
    order.settle(5)
    order.settle(5)
    assert order.take(9) == []
    assert len(order) == 0


def test_without_lanes_the_lowest_position_is_first() -> None:
    order = AnyOrder()
    for position in (3, 1, 2):
        order.add(position, None)
    order.restore(4, None, leased=True)
    order.restore(5, None, leased=False)
    order.settle(2)
    assert order.take(1) == [1]
    assert order.take(5) == [3]
    assert order.revoke_after(1) == []
    order.hold(1)
    assert not order.ready
    order.give_back(1)
    assert order.take(5) == [1]


@pytest.mark.rule("GRP-3")
def test_a_lane_is_free_only_while_none_of_its_positions_is_leased() -> None:
    lanes = Lanes()
    for position, key in ((1, "a"), (2, "a"), (3, "b"), (4, "a")):
        lanes.add(position, key)
    assert lanes.take(1) == [1]
    assert lanes.take(9) == [3]
    lanes.add(5, "a")
    assert lanes.take(9) == []
    lanes.settle(1)
    assert lanes.take(2) == [2, 4]
    lanes.settle(4)
    assert lanes.take(9) == []
    lanes.give_back(2)
    assert lanes.take(9) == [2, 5]
    assert len(lanes) == 3


@pytest.mark.rule("GRP-3")
def test_later_positions_of_a_lane_are_revoked() -> None:
    lanes = Lanes()
    for position in (1, 2, 3):
        lanes.add(position, None)
    lanes.add(4, "other")
    assert lanes.take(9) == [1, 2, 3, 4]
    assert sorted(lanes.revoke_after(2)) == [3]
    assert lanes.revoke_after(9) == []
    lanes.give_back(2)
    assert lanes.take(9) == []
    lanes.settle(1)
    assert lanes.take(9) == [2, 3]


@pytest.mark.rule("GRP-4")
def test_a_revoked_position_that_is_held_is_not_leased_again() -> None:
    lanes = Lanes()
    for position in (1, 2, 3):
        lanes.add(position, None)
    assert lanes.take(2) == [1, 2]
    assert lanes.revoke_after(1) == [2]
    lanes.settle(1)
    assert lanes.ready
    lanes.hold(2)
    lanes.hold(4)
    assert (lanes.ready, lanes.take(9)) == (False, [])
    lanes.settle(2)
    assert lanes.take(9) == [3]


def test_a_lease_from_before_a_restart_holds_its_lane() -> None:
    lanes = Lanes()
    lanes.give_back(1)
    lanes.add(1, "a")
    lanes.restore(2, "a", leased=True)
    lanes.restore(3, "b", leased=False)
    assert lanes.take(9) == [3]
    lanes.give_back(2)
    assert lanes.take(9) == [1, 2]
