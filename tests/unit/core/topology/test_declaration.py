"""Queues made from declarations, and their numbers."""

from __future__ import annotations

import pytest

from escrowmq.core.conditions import BrokerError
from tests.unit.core.site import Site


@pytest.fixture
def site() -> Site:
    return Site()


def test_ids_of_queues_are_never_reused(site: Site) -> None:
    first = site.queue("one").ident
    site.broker.directory.delete_queue(site.vhost.queue("one"))
    site.snapshot()
    again = site.restart()
    assert again.queue("two").ident > first


def test_a_refused_declaration_takes_no_number(site: Site) -> None:
    first = site.queue("one").ident
    with pytest.raises(BrokerError, match="x-max-length"):
        site.queue("two", {"x-max-length": -1})
    assert site.queue("two").ident == first + 1
