"""The assembly of the broker's parts."""

from __future__ import annotations

import pytest

from tests.unit.core.xa_site import XaSite


@pytest.mark.rule("TX-5")
def test_every_part_acts_on_the_same_queues() -> None:
    site = XaSite()
    branch = site.begin()
    site.broker.transactions.enlist(branch, site.publication("q", b"a"))
    site.broker.transactions.commit(branch)
    site.prepared(settle=0, publish=(b"b",))
    site.turn()
    assert (site.q.ready, site.vhost.queue("to").ready) == (1, 0)
    site.broker.reservations.reserve(site.q, "group", 1)
    assert site.q.ready == 0
    assert site.broker.directory.delete_queue(site.q) == 0
    assert [view.published[0].queue for view in site.broker.branches.views()] == ["to"]
