"""The door refuses every operation for which a right is missing (SEC-1)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest

from escrowmq.core.access.access import Access
from escrowmq.core.access.door import Door
from escrowmq.core.access.owned import Concerns
from escrowmq.core.access.table import READS, TABLE, Need, Operation
from escrowmq.core.budget import STEPS, TURN, Budget
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.queues.queue import Queue
from escrowmq.core.topology.vhost import VirtualHost

KEYS = {"exchange": "topic", "key": "k"}


class Thing:
    """An owned object that concerns the given queue and exchanges."""

    title = "the thing"

    def __init__(self, *exchanges: str, user: str = "owner", queue: str = "mine") -> None:
        self.user = user
        self.concerns: Concerns | None = Concerns()
        if queue:
            self.concerns.add("queue", queue, "read")
        for exchange in exchanges:
            self.concerns.add("exchange", exchange, "write")


def door(
    user: str = "u",
    *,
    tags: tuple[str, ...] = (),
    topic: str = "",
    table: Mapping[Operation, tuple[Need, ...]] = TABLE,
) -> Door:
    """Return a door for a user that may do everything with names of `mine`, and write to the exchange `topic`."""
    access = Access()
    access.add_vhost("/")
    access.add_user(user, "", tags)
    access.set_permission(user, "/", "^mine", "^(mine|topic)", "^mine")
    vhost: VirtualHost[Queue] = VirtualHost("/")
    vhost.declare_exchange("topic", "topic", durable=False)
    vhost.declare_exchange("mine", "direct", durable=False)
    if topic:
        access.set_topic_permission(user, "/", "topic", topic, topic)
    return Door(access, user, vhost, table=table)


@pytest.mark.rule("SEC-1")
def test_an_operation_without_a_rule_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("escrowmq.core.access.door.TABLE", {})
    with pytest.raises(BrokerError, match="no rule for the operation 'publish'") as refused:
        door(table={}).check(Operation.PUBLISH, **KEYS)
    assert refused.value.condition is Condition.ACCESS_REFUSED


@pytest.mark.rule("SEC-1")
def test_an_operation_that_this_broker_does_not_serve_is_refused_with_the_way_to_the_leader() -> None:
    found = door(tags=("administrator",), table=READS)
    with pytest.raises(
        BrokerError, match="a standby only serves reads of streams; ask the leader to publish"
    ) as refused:
        found.check_publish("mine", ["k"])
    assert refused.value.condition is Condition.ACCESS_REFUSED
    assert found.allows(Operation.DESCRIBE_QUEUE, queue="mine")
    assert not found.allows(Operation.DESCRIBE_QUEUE, queue="other")


@pytest.mark.rule("SEC-1")
def test_every_operation_has_a_rule() -> None:
    assert TABLE.keys() == set(Operation)


@pytest.mark.rule("SEC-1")
def test_names_are_compared_with_patterns() -> None:
    door().check(Operation.CONSUME, queue="mine")
    with pytest.raises(BrokerError, match="access to queue 'theirs'"):
        door().check(Operation.CONSUME, queue="theirs")
    with pytest.raises(BrokerError, match="access to exchange 'theirs'"):
        door().check(Operation.BIND_EXCHANGE, destination="theirs", exchange="mine", key="")


@pytest.mark.rule("SEC-1")
def test_routing_keys_are_compared_with_topic_permissions() -> None:
    assert door().allows(Operation.PUBLISH, **KEYS)
    assert door(topic="^k$").allows(Operation.PUBLISH, **KEYS)
    assert not door(topic="^other$").allows(Operation.PUBLISH, **KEYS)


@pytest.mark.rule("SEC-2")
@pytest.mark.parametrize(
    ("made", "thing", "sees", "decides"),
    [
        pytest.param(door("owner"), Thing(queue="theirs"), True, True, id="owner"),
        pytest.param(door(), Thing("topic"), True, True, id="covered"),
        pytest.param(door(), Thing("theirs"), False, False, id="partly covered"),
        pytest.param(door(topic="^k$"), Thing("topic"), False, False, id="restricted keys"),
        pytest.param(door(), Thing(queue=""), False, False, id="no work"),
        pytest.param(door(tags=("monitoring",)), Thing("theirs"), True, False, id="monitoring"),
        pytest.param(door(tags=("administrator",)), Thing("theirs"), True, True, id="administrator"),
        pytest.param(door(tags=("management",)), Thing("theirs"), False, False, id="another tag"),
    ],
)
def test_rights_follow_from_owner_permissions_and_tags(made: Door, thing: Thing, sees: bool, decides: bool) -> None:
    assert made.allows(Operation.LIST_BRANCH, branch=thing) is sees
    assert made.allows(Operation.COMMIT_BRANCH, branch=thing) is decides


@pytest.mark.rule("SEC-2")
def test_too_much_work_is_covered_by_no_permission() -> None:
    thing = Thing()
    assert thing.concerns is not None
    thing.concerns.complete = False
    assert not door().allows(Operation.COMMIT_BRANCH, branch=thing)
    assert door("owner").allows(Operation.COMMIT_BRANCH, branch=thing)


def test_a_tag_does_not_cover_contents() -> None:
    assert not door(tags=("administrator",)).covers(Thing("theirs"))
    assert door("owner").covers(Thing("theirs"))


def test_an_object_that_does_not_exist_yet_has_no_owner() -> None:
    door().check(Operation.SET_PROGRESS, progress=None)


@pytest.mark.rule("SEC-1")
def test_a_remembered_verdict_ends_with_the_permission() -> None:
    access = Access()
    access.add_vhost("/")
    access.add_user("u", "")
    access.set_permission("u", "/", "", "x", "")
    made = Door(access, "u", VirtualHost[Queue]("/"))
    for _ in range(2):
        made.check_publish("x", ("k",))
    access.set_permission("u", "/", "", "", "")
    with pytest.raises(BrokerError):
        made.check_publish("x", ("k",))


@pytest.mark.rule("SEC-1")
def test_restricted_keys_are_checked_each_time() -> None:
    made = door(topic="^a")
    made.check_publish("topic", ("a",))
    with pytest.raises(BrokerError):
        made.check_publish("topic", ("a", "b"))


@pytest.mark.rule("SEC-1")
def test_restricted_keys_of_many_messages_are_checked_each() -> None:
    door(topic="^[ab]").check_publish_each("topic", ["a", "b"])
    with pytest.raises(BrokerError):
        door(topic="^a").check_publish_each("topic", ["a", "a.b", "b"])


def restricted(count: int, kind: str, *, leads_to_topic: bool) -> tuple[Door, VirtualHost[Queue], Access, Budget]:
    """Return a door for a user that may publish only the key `a` to the exchange `topic`, and `count` exchanges that
    are all bound to each other. The last one may lead to `topic`.
    """
    access, budget = Access(), Budget()
    access.add_vhost("/")
    access.add_user("u", "")
    access.set_permission("u", "/", "", ".*", "")
    access.set_topic_permission("u", "/", "topic", "^a$", "")
    vhost: VirtualHost[Queue] = VirtualHost("/")
    vhost.declare_exchange("topic", "topic")
    for i in range(count):
        vhost.declare_exchange(f"e{i}", kind)
    for one, other in itertools.product(range(count), repeat=2):
        vhost.bind_exchange(f"e{one}", f"e{other}", "#")
    if leads_to_topic:
        vhost.bind_exchange(f"e{count - 1}", "topic", "#")
    return Door(access, "u", vhost, budget), vhost, access, budget


@pytest.mark.rule("FAIR-1")
def test_ways_that_restrict_no_key_are_walked_once_and_charged() -> None:
    made, _, _, budget = restricted(30, "topic", leads_to_topic=False)
    for i in range(100):
        made.check_publish("e0", (f"key {i}",))
    assert 30 * 30 <= (TURN - budget.left) * STEPS < 2 * 30 * 30


@pytest.mark.rule("FAIR-1", "SEC-3")
def test_ways_that_restrict_keys_are_walked_once_for_each_key_and_charged() -> None:
    made, _, _, budget = restricted(30, "fanout", leads_to_topic=True)
    for _ in range(100):
        made.check_publish("e0", ("a",))
    assert (TURN - budget.left) * STEPS < 3 * 30 * 30
    before = budget.left
    for i in range(10):
        with pytest.raises(BrokerError, match="access to topic"):
            made.check_publish("e0", (f"key {i}",))
    assert (before - budget.left) * STEPS >= 9 * 30 * 30


@pytest.mark.rule("SEC-3")
def test_a_verdict_on_a_way_ends_with_a_change_of_bindings_exchanges_or_permissions() -> None:
    made, vhost, access, _ = restricted(2, "fanout", leads_to_topic=False)

    def publishes(key: str) -> bool:
        try:
            made.check_publish("e0", (key,))
        except BrokerError:
            return False
        return True

    assert publishes("b")
    vhost.bind_exchange("e1", "topic", "")
    assert (publishes("b"), publishes("a")) == (False, True)
    access.set_topic_permission("u", "/", "topic", "^b$", "")
    assert (publishes("b"), publishes("a")) == (True, False)
    vhost.delete_exchange("topic")
    assert publishes("a")
    vhost.declare_exchange("topic", "topic")
    vhost.declare_exchange("other", "direct", arguments={"alternate-exchange": "topic"})
    vhost.bind_exchange("e0", "other", "")
    assert (publishes("b"), publishes("a")) == (True, False)


@pytest.mark.rule("SEC-1")
@pytest.mark.parametrize("right", ["configure", "write", "read"])
def test_one_of_three_rights_is_enough_to_know_of_a_topic(right: str) -> None:
    access = Access()
    access.add_vhost("/")
    access.add_user("u", "")
    access.set_permission("u", "/", **{each: "^t$" if each == right else "" for each in ("configure", "write", "read")})
    made = Door(access, "u", VirtualHost[Queue]("/"))
    assert made.allows(Operation.DESCRIBE_TOPIC, exchange="t")
    with pytest.raises(BrokerError, match="access to exchange 'theirs'"):
        made.check(Operation.DESCRIBE_TOPIC, exchange="theirs")


@pytest.mark.rule("SEC-1")
def test_a_verdict_holds_for_every_key_if_none_is_restricted() -> None:
    access = Access()
    access.add_vhost("/")
    access.add_user("u", "")
    access.set_permission("u", "/", "", "x", "")
    assert Door(access, "u", VirtualHost[Queue]("/")).allows_any_key("x", "k")
    made = door(topic="^a")
    assert not made.allows_any_key("topic", "a")
    with pytest.raises(BrokerError):
        made.allows_any_key("topic", "b")
