"""The memory that users and virtual hosts hold: counted in steps, bounded, and free when its owner goes."""

from __future__ import annotations

import pytest

from escrowmq.core.access.holdings import STEP, Holdings
from escrowmq.core.branches.branch import OPERATION_BYTES, Keep, Limits, Settlement
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.queues.outcome import Disposition
from tests.unit.core.site import Hand, Site, taken


class Channel:
    def __init__(self) -> None:
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1


def test_shares_are_counted_in_steps_for_the_user_and_the_virtual_host() -> None:
    holdings = Holdings()
    one, two, three = holdings.begin("a", "/"), holdings.begin("a", "v"), holdings.begin("b", "/")
    one.grow(1, "it")
    two.grow(STEP + 1, "it")
    three.follow(5 * STEP)
    assert (holdings.of_user("a"), holdings.of_user("b")) == (3 * STEP, 5 * STEP)
    assert (holdings.of_vhost("/"), holdings.of_vhost("v")) == (6 * STEP, 2 * STEP)
    one.grow(0, "it")
    three.shrink(4 * STEP)
    assert holdings.of_vhost("/") == 6 * STEP, "a step stays"
    three.shrink(0)
    assert holdings.of_user("b") == STEP
    for holding in (one, two, three):
        holding.close()
        holding.close()
    assert not any(map(holdings.of_user, "ab"))
    assert not any(map(holdings.of_vhost, "/v"))


@pytest.mark.rule("FAIR-3")
@pytest.mark.parametrize("limited", ["user", "vhost"])
def test_growth_beyond_the_limit_is_refused_and_changes_nothing(limited: str) -> None:
    holdings = Holdings()
    if limited == "user":
        holdings.user_limit = 4 * STEP
    else:
        holdings.vhost_limit = 4 * STEP
    one, other = holdings.begin("a", "/"), holdings.begin("a", "/")
    one.grow(3 * STEP, "it")
    with pytest.raises(BrokerError) as refused:
        other.grow(2 * STEP, "the transaction")
    assert refused.value.condition is Condition.LIMIT_EXCEEDED
    assert "no memory for the transaction" in refused.value.text
    assert holdings.of_user("a") == 3 * STEP
    other.grow(STEP, "it")
    assert [one.full, other.full, holdings.begin("b", "w").full] == [True, True, False]
    one.close()
    assert [one.full, other.full] == [False, False]
    other.grow(3 * STEP, "it")


def test_what_is_paused_goes_on_when_less_is_held() -> None:
    holdings = Holdings()
    holdings.user_limit = 2 * STEP
    one, channel, gone = holdings.begin("a", "/"), Channel(), Channel()
    one.follow(5 * STEP)
    holdings.pause(channel)
    holdings.pause(gone)
    holdings.forget(gone)
    woken = []
    for size in (3 * STEP, STEP, 0):
        one.follow(size)
        woken.append((channel.woken, gone.woken))
    assert woken == [(0, 0), (1, 0), (1, 0)]


@pytest.mark.rule("FAIR-2")
@pytest.mark.parametrize("end", ["commit", "rollback", "close", "expire"])
def test_a_transaction_counts_until_its_end(end: str) -> None:
    site = Site()
    queue = site.queue("q")
    site.publish("q", *[b"x" * 1000] * 100)
    consumer, entries = taken(site, queue)
    holdings = site.broker.holdings
    branch = site.begin(Limits())
    branch.holding = holdings.begin("a", "/")
    for _ in range(100):
        site.broker.transactions.enlist(branch, site.publication("q", b"x" * 1000))
    published = 100 * (1000 + OPERATION_BYTES)
    assert published <= holdings.of_user("a") < published + 2 * STEP
    tags = range(1, 101)
    site.broker.transactions.enlist(branch, Settlement(consumer, entries, Disposition.ACCEPTED, Keep(Hand(), tags)))
    assert holdings.of_user("a") > 2 * published
    getattr(site.broker.transactions, end)(branch)
    assert holdings.of_user("a") == (STEP if end in ("commit", "rollback") else 0)


@pytest.mark.rule("FAIR-3")
def test_a_transaction_at_the_limit_is_refused_as_a_whole() -> None:
    site = Site()
    site.queue("q")
    site.broker.holdings.user_limit = 4 * STEP
    branch = site.begin()
    branch.holding = site.broker.holdings.begin("a", "/")
    for _ in range(50):
        site.broker.transactions.enlist(branch, site.publication("q", b"x" * 1000))
    with pytest.raises(BrokerError) as refused:
        site.broker.transactions.enlist(branch, site.publication("q", *[b"x" * 1000] * 50))
    assert refused.value.condition is Condition.LIMIT_EXCEEDED
    site.broker.transactions.close(branch)
    assert site.broker.holdings.of_user("a") == 0
    assert site.contents() == []
