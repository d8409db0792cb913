"""The registry of consumers."""

from __future__ import annotations

import pytest

from escrowmq.wire.rocketmq.remoting.clients import ConsumerRegistry, GroupMember, TopicSubscription
from escrowmq.wire.rocketmq.remoting.codes import Code
from escrowmq.wire.rocketmq.remoting.questions import Answered


class Told:
    """A connection that notes what it is told."""

    def __init__(self) -> None:
        self.groups: list[str] = []

    def consumers_changed(self, group: str) -> None:
        self.groups.append(group)

    def ask(self, code: Code, fields: dict[str, str], body: bytes, answered: Answered) -> None:
        """Do nothing: these tests ask for nothing."""


def test_members_are_told_of_every_change_the_new_one_too() -> None:
    registry, one, other = ConsumerRegistry(), Told(), Told()
    registry.join("g", GroupMember(one, "1"))
    registry.join("g", GroupMember(other, "2"))
    assert (one.groups, other.groups) == (["g", "g"], ["g"])
    assert sorted(registry.members("g")) == ["1", "2"]
    registry.leave_all(other)
    assert (one.groups, other.groups) == (["g"] * 3, ["g"])
    assert sorted(registry.members("g")) == ["1"]


def test_a_heartbeat_without_a_change_tells_nobody() -> None:
    registry, one = ConsumerRegistry(), Told()
    for expression in ("*", "a"):
        registry.join("g", GroupMember(one, "1", subscriptions={"t": TopicSubscription("", expression)}))
    assert one.groups == ["g"]
    found = registry.member(one, "g")
    assert found is not None
    assert found.subscriptions == {"t": TopicSubscription("", "a")}


def test_a_client_that_connects_again_takes_its_place() -> None:
    registry, old, new = ConsumerRegistry(), Told(), Told()
    registry.join("g", GroupMember(old, "1"))
    registry.join("g", GroupMember(new, "1"))
    registry.leave_all(old)
    assert registry.member(old, "g") is None
    assert registry.members("g")["1"].connection is new
    registry.leave(new, "g")
    assert registry.members("g") == {}
    assert registry.groups_of(new) == {}


def test_leaving_a_group_that_one_is_not_in_changes_nothing() -> None:
    registry, one = ConsumerRegistry(), Told()
    registry.leave(one, "g")
    registry.join("g", GroupMember(one, "1"))
    registry.leave(one, "h")
    assert one.groups == ["g"]


def test_a_reset_is_noted_for_a_group_with_members_until_it_is_told() -> None:
    registry, one = ConsumerRegistry(), Told()
    registry.note_reset("g", 1)
    assert not registry.was_reset("g", 1)
    registry.join("g", GroupMember(one, "1"))
    registry.note_reset("g", 1)
    assert (registry.was_reset("g", 1), registry.was_reset("g", 2)) == (True, False)
    registry.forget_reset("g", 1)
    assert not registry.was_reset("g", 1)
    registry.note_reset("g", 2)
    registry.leave_all(one)
    assert not registry.was_reset("g", 2)


@pytest.mark.rule("FAIR-2")
def test_a_connection_that_changes_its_client_id_leaves_no_member_behind() -> None:
    registry, one = ConsumerRegistry(), Told()
    for number in range(100):
        registry.join("g", GroupMember(one, str(number)))
    assert registry.members("g").keys() == {"99"}
    registry.leave_all(one)
    assert registry.members("g") == {}


def test_the_subscriptions_of_a_connection_are_counted() -> None:
    registry, one, other = ConsumerRegistry(), Told(), Told()
    three = {topic: TopicSubscription() for topic in "abc"}
    registry.join("g", GroupMember(one, "1", subscriptions=three))
    registry.join("h", GroupMember(one, "1", subscriptions={"a": TopicSubscription()}))
    assert registry.subscriptions_of(one) == 4
    registry.join("h", GroupMember(one, "2", subscriptions=three))
    assert registry.subscriptions_of(one) == 6
    registry.join("g", GroupMember(other, "1", subscriptions=three))
    assert (registry.subscriptions_of(one), registry.subscriptions_of(other)) == (3, 3)
    registry.leave(one, "h")
    registry.leave_all(other)
    assert (registry.subscriptions_of(one), registry.subscriptions_of(other)) == (0, 0)
