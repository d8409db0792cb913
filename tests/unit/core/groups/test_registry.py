"""Consumer groups by name."""

from __future__ import annotations

import pytest

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.groups.group import Group
from escrowmq.core.groups.options import GroupOptions
from escrowmq.core.queues.queue import Queue
from escrowmq.core.records.kinds import Kind
from tests.unit.core.groups.consuming import Consuming
from tests.unit.core.site import Site


def test_a_group_is_declared_once_and_gets_new_options() -> None:
    site = Site()
    groups = site.broker.groups
    group = groups.declare("/", "g", user="u")
    assert groups.declare("/", "g") is group
    assert groups.declare("/", "g", GroupOptions()) is group
    assert groups.declare("/", "g", GroupOptions(max_attempts=3), user="other") is group
    assert (group.options.max_attempts, group.user) == (3, "u")
    assert groups.all("/") == list(groups.every()) == [group]
    assert groups.find("/", "other") is None
    assert len(site.records(Kind.GROUP_SET)) == 2


def test_wrong_options_change_nothing() -> None:
    site = Site()
    with pytest.raises(BrokerError, match="max_attempts"):
        site.broker.groups.declare("/", "g", GroupOptions(max_attempts=0))
    assert site.broker.groups.all("/") == []


@pytest.mark.rule("FAIR-3")
def test_the_number_of_groups_is_bounded() -> None:
    groups = Site().broker.groups
    groups.limits.groups = 1
    groups.declare("/", "g")
    with pytest.raises(BrokerError, match="1 consumer groups, the limit") as caught:
        groups.declare("/", "h")
    assert caught.value.condition is Condition.LIMIT_EXCEEDED
    groups.delete(groups.declare("/", "g"))
    groups.declare("/", "h")


@pytest.mark.rule("FAIR-3")
def test_no_group_is_made_while_memory_is_scarce() -> None:
    site = Site()
    site.broker.engine.scarcity = "short of memory"
    with pytest.raises(BrokerError, match="short of memory"):
        site.broker.groups.declare("/", "g")


def test_numbers_are_not_reused_after_a_snapshot() -> None:
    site = Site()
    site.broker.groups.delete(site.broker.groups.declare("/", "g"))
    site.snapshot()
    assert site.restart().broker.groups.declare("/", "g").number == 2


def test_progress_is_recorded_in_the_turn_and_not_for_a_deleted_group() -> None:
    c = Consuming()
    c.publish("a")
    c.group.advance(c.stream, 2)
    c.site.broker.groups.delete(c.group)
    c.site.turn()
    assert c.site.records(Kind.GROUP_PROGRESS) == []


@pytest.mark.rule("FAIR-1")
def test_a_queue_that_is_deleted_concerns_only_the_groups_that_consume_it(monkeypatch: pytest.MonkeyPatch) -> None:
    consuming = Consuming(partitions=2)
    groups = consuming.site.broker.groups
    locking, other = groups.declare("/", "locking"), groups.declare("/", "other")
    consuming.group.cursor(consuming.streams[0])
    locking.lock(consuming.streams[1], "member", consuming.site.now + 1000)
    asked: list[tuple[Group, int]] = []
    forget = Group.forget_stream

    def forgetting(group: Group, stream: Queue) -> None:
        asked.append((group, stream.ident))
        forget(group, stream)

    monkeypatch.setattr(Group, "forget_stream", forgetting)
    idents = [stream.ident for stream in consuming.streams]
    consuming.site.broker.topics.delete(consuming.site.vhost, "t")
    assert asked == [(consuming.group, idents[0]), (locking, idents[1])]
    assert not consuming.group.cursors
    assert not locking.locks
    assert not other.cursors
