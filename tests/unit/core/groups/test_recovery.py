"""Groups that recovery finds: what was deleted meanwhile is gone."""

from __future__ import annotations

import pytest

from tests.unit.core.groups.consuming import Consuming


@pytest.mark.parametrize("what", ["stream", "group", "virtual host"])
def test_what_was_deleted_does_not_come_back(what: str) -> None:
    c = Consuming()
    c.publish("a")
    c.lease()
    c.group.lock(c.stream, "me", c.site.now + 100)
    if what == "stream":
        c.site.broker.topics.delete(c.site.vhost, "t")
    elif what == "group":
        c.site.broker.groups.delete(c.group)
    else:
        c.site.broker.directory.delete_vhost("/")
    c.site.turn()
    groups = c.site.restart().broker.groups
    found = groups.find("/", "g")
    assert (found is not None) is (what == "stream")
    assert found is None or not (found.cursors or found.locks)
