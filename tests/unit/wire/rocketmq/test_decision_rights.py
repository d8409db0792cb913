"""Rights to decide half messages are looked up once for all that share an origin, until they are cleared."""

from __future__ import annotations

import pytest

from escrowmq.core.access.door import Door
from escrowmq.wire.rocketmq.decision_rights import DecisionRights
from tests.unit.core.half.half_site import USER, HalfSite


def rights(site: HalfSite, user: str) -> DecisionRights:
    if user not in site.broker.access.users:
        site.broker.access.add_user(user, "hash")
    return DecisionRights(site.half, Door(site.broker.access, user, site.vhost), "/")


@pytest.mark.rule("SEC-1")
def test_the_owner_may_decide_and_others_need_a_permission() -> None:
    site = HalfSite()
    first, second = site.store("a").number, site.store("b").number
    owner, other = rights(site, USER), rights(site, "bob")
    found = owner.origin(first)
    assert found is not None
    assert owner.origin(second) is found
    assert owner.origin(9) is None
    assert other.origin(first) is None
    site.broker.access.set_permission("bob", "/", "", ".*", "")
    assert other.origin(first) is found


@pytest.mark.rule("SEC-1")
def test_cleared_rights_are_looked_up_again() -> None:
    site = HalfSite()
    number = site.store("a").number
    other = rights(site, "bob")
    site.broker.access.set_permission("bob", "/", "", ".*", "")
    assert other.origin(number) is not None
    site.broker.access.set_permission("bob", "/", "", "", "")
    assert other.origin(number) is not None
    other.clear()
    assert other.origin(number) is None
