"""The age of the oldest unacknowledged delivery is known to about a second, and noting it takes bounded memory."""

from __future__ import annotations

from escrowmq.core.queues.unsettled import Unsettled
from escrowmq.wire.delivery_ages import MOST, DeliveryAges
from tests.unit.core.queues.test_unsettled import CONSUMER, entries


def test_nothing_unsettled_has_no_age() -> None:
    ages, unsettled = DeliveryAges(), Unsettled()
    ages.note(1000, unsettled)
    assert ages.age_ms(5000, unsettled) is None


def test_the_age_is_that_of_the_oldest_delivery_however_many_follow() -> None:
    ages, unsettled = DeliveryAges(), Unsettled()
    unsettled.add(entries(1), CONSUMER)
    assert ages.age_ms(900, unsettled) == 0  # it has not been noted yet
    for second in range(1, 10):
        ages.note(1000 * second, unsettled)
        unsettled.add(entries(1), CONSUMER)
    assert ages.age_ms(9500, unsettled) == 8500
    unsettled.take(1)
    unsettled.take(2)
    assert ages.age_ms(9500, unsettled) == 6500
    unsettled.clear()
    ages.note(10_000, unsettled)
    unsettled.add(entries(1), CONSUMER)
    ages.note(11_000, unsettled)
    assert ages.age_ms(11_500, unsettled) == 500


def test_a_delivery_in_the_middle_that_is_settled_makes_the_oldest_no_younger() -> None:
    ages, unsettled = DeliveryAges(), Unsettled()
    unsettled.add(entries(3), CONSUMER)
    ages.note(1000, unsettled)
    unsettled.take(2)
    assert (unsettled.first_tag, ages.age_ms(3000, unsettled)) == (1, 2000)
    unsettled.take(1)
    assert (unsettled.first_tag, ages.age_ms(3000, unsettled)) == (3, 2000)


def test_the_moments_are_bounded_and_the_first_one_stays() -> None:
    ages, unsettled = DeliveryAges(), Unsettled()
    for second in range(1, 10 * MOST):
        unsettled.add(entries(1), CONSUMER)
        ages.note(1000 * second, unsettled)
    assert len(ages._moments) <= MOST
    assert ages.age_ms(10_000 * MOST, unsettled) == 10_000 * MOST - 1000
