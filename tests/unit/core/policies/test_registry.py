"""Queues and exchanges follow policies: new and existing ones, at once, and through restarts."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.core.branches.xa import XaStatus
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.policies import registry
from escrowmq.core.policies.policy import Policy
from escrowmq.core.queues.queue import Queue
from escrowmq.core.records.changes import decode_change
from escrowmq.core.records.kinds import Kind
from tests.unit.core.site import Sink, Site, taken
from tests.unit.core.xa_site import X, XaSite


@pytest.fixture
def site() -> Site:
    return Site()


def put(site: Site, name: str = "p", pattern: str = "", *, turn: bool = True, **parts: Any) -> bool:
    """Set a policy. Parts that are no part of a policy are keys of its definition, with underscores for dashes."""
    given = {key: parts.pop(key) for key in ("priority", "apply_to", "operator") if key in parts}
    definition = {key.replace("_", "-"): value for key, value in parts.items()}
    new = site.broker.directory.policies.put(Policy("/", name, pattern, definition, **given))
    if turn:
        site.turn()
    return new


def remove(site: Site, name: str = "p", *, operator: bool = False) -> None:
    site.broker.directory.policies.remove("/", name, operator=operator)
    site.turn()


def names(queue: Queue) -> tuple[str, str] | None:
    return queue.effective and queue.effective[:2]


class TestLimits:
    def test_existing_and_new_queues_drop_messages_beyond_a_length(self, site: Site) -> None:
        old = site.queue("old")
        site.publish("old", b"1", b"2", b"3")
        assert put(site, max_length=2)
        assert site.contents("old") == [b"2", b"3"]
        site.queue("new")
        for name in ("old", "new"):
            site.publish(name, b"4", b"5", b"6")
        site.turn()
        assert site.contents("old") == site.contents("new") == [b"5", b"6"]
        assert names(old) == ("p", "")

    def test_without_the_policy_queues_grow_again(self, site: Site) -> None:
        put(site, max_length=1)
        queue = site.queue()
        remove(site)
        site.publish("q", b"1", b"2")
        site.turn()
        assert site.contents() == [b"1", b"2"]
        assert queue.options is queue.declared
        assert queue.effective is None

    def test_dropped_messages_become_dead_letters_by_a_policy(self, site: Site) -> None:
        site.queue("dead")
        site.queue()
        site.publish("q", b"1", b"2")
        put(site, "p", "^q$", max_length=1, dead_letter_exchange="", dead_letter_routing_key="dead")
        assert (site.contents(), site.contents("dead")) == ([b"2"], [b"1"])

    def test_a_queue_refuses_messages_by_a_policy(self, site: Site) -> None:
        site.queue()
        put(site, max_length=1, overflow="reject-publish")
        assert site.publish("q", b"1", b"2").refused == (1,)
        remove(site)
        assert site.publish("q", b"3").refused == ()

    @pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 3}, {"x-max-length": 100}])
    def test_a_limit_in_bytes_counts_the_messages_that_are_there(self, site: Site, arguments: dict[str, Any]) -> None:
        queue = site.queue("q", arguments)
        for number in range(60):
            site.publish("q", b"%04d" % number, priority=number % 3)
        _, held = taken(site, queue, 5)
        assert len(held) == 5
        put(site, max_length_bytes=200)
        assert (queue.unmeasured_below, queue.bytes) == (0, 200)
        assert queue.ready == 50
        queue.put_back(held)
        assert queue.bytes == 220
        site.turn()
        assert (queue.ready, queue.bytes) == (50, 200)

    def test_messages_are_measured_in_pieces_while_others_leave_and_arrive(self, site: Site) -> None:
        queue = site.queue()
        for number in range(500):
            site.publish("q", b"%04d" % number)
        _, held = taken(site, queue, 20)
        put(site, max_length_bytes=10_000, turn=False)
        assert queue.unmeasured_below > 1
        queue.put_back(held[:10])
        site.publish("q", b"1", b"2")
        taken(site, queue, 30)
        queue.put_back(held[10:])
        site.turn()
        assert queue.unmeasured_below == 0
        assert queue.bytes == sum(map(len, site.contents()))

    def test_messages_in_the_log_are_measured_after_a_restart(self, site: Site) -> None:
        site.queue()
        for number in range(100):
            site.publish("q", b"%04d" % number)
        site.sync()
        again = site.restart(resident_limit=1000)
        put(again, max_length_bytes=40)
        assert again.contents() == [b"%04d" % number for number in range(90, 100)]

    def test_very_many_messages_are_dropped_in_pieces(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("escrowmq.core.queues.room.MOST", 100)
        queue = site.queue()
        site.publish("q", *[b"x"] * 9000)
        put(site, max_length=2, turn=False)
        left = [queue.ready]
        while left[-1] > 2:
            site.broker.engine.turn.end()
            left.append(queue.ready)
        assert len(left) > 3


class TestLifetimes:
    def test_messages_that_are_there_expire_by_their_age(self, site: Site) -> None:
        site.queue()
        site.publish("q", b"old")
        site.after(600)
        site.publish("q", b"new")
        put(site, message_ttl=1000)
        assert site.contents() == [b"old", b"new"]
        site.after(402)
        assert site.contents() == [b"new"]
        site.after(600)
        assert site.contents() == []

    def test_a_longer_lifetime_and_none_hold_for_messages_that_are_there(self, site: Site) -> None:
        put(site, message_ttl=1000)
        site.queue()
        site.publish("q", b"1")
        put(site, message_ttl=5000)
        site.after(4000)
        assert site.contents() == [b"1"]
        remove(site)
        site.after(4000)
        assert site.contents() == [b"1"]

    def test_a_delivery_that_returns_expires_by_the_current_lifetime(self, site: Site) -> None:
        queue = site.queue()
        site.publish("q", b"1")
        _, held = taken(site, queue)
        put(site, message_ttl=1000)
        site.after(2000)
        queue.put_back(held)
        site.after(2)
        assert site.contents() == []

    def test_an_unused_queue_is_deleted_after_the_time_that_a_policy_gives_it(self, site: Site) -> None:
        site.queue("q")
        site.queue("r", {"x-expires": 10_000})
        site.after(5000)
        put(site, expires=1000)
        site.after(999)
        assert set(site.vhost.queues) == {"q", "r"}
        remove(site)
        site.after(5000)
        assert set(site.vhost.queues) == {"q", "r"}
        put(site, expires=1000)
        site.after(1001)
        assert set(site.vhost.queues) == set()


class TestStreams:
    def test_a_stream_drops_by_size_and_age(self, site: Site) -> None:
        queue = site.queue("s", {"x-queue-type": "stream"})
        for _ in range(300):
            site.publish("s", b"x" * 10)
        site.turn()
        put(site, max_length_bytes=1000)
        assert queue.ready == 100
        site.after(60_000)
        site.publish("s", b"y")
        put(site, max_age="30s")
        assert queue.ready == 1
        remove(site)
        site.after(60_000)
        assert queue.ready == 1

    def test_a_stream_is_measured_after_a_restart(self, site: Site) -> None:
        site.queue("s", {"x-queue-type": "stream"})
        for _ in range(300):
            site.publish("s", b"x" * 10)
        site.sync()
        again = site.restart()
        put(again, max_length_bytes=1000)
        assert (again.vhost.queue("s").ready, again.vhost.queue("s").bytes) == (100, 1000)


class TestExchanges:
    def test_an_alternate_exchange_by_a_policy_takes_what_is_not_routed(self, site: Site) -> None:
        directory = site.broker.directory
        site.queue()
        directory.declare_exchange(site.vhost, "x", "direct", durable=True)
        directory.declare_exchange(site.vhost, "own", "direct", arguments={"alternate-exchange": "amq.direct"})
        directory.bind_queue(site.vhost, "amq.fanout", "q", "")
        site.publish("k", b"1", exchange="x")
        put(site, "p", "^(x|own|)$", alternate_exchange="amq.fanout")
        site.publish("k", b"2", exchange="x")
        site.publish("k", b"3", exchange="own")
        site.publish("no", b"4")
        remove(site)
        site.publish("k", b"5", exchange="x")
        assert site.contents() == [b"2"]

    def test_the_default_exchange_can_be_the_alternate(self, site: Site) -> None:
        put(site, alternate_exchange="")
        site.publish("later", b"1", exchange="amq.direct")
        site.queue("later")
        site.publish("later", b"2", exchange="amq.direct")
        assert site.contents("later") == [b"2"]


class TestPieces:
    @pytest.mark.rule("FAIR-1")
    def test_many_queues_follow_in_pieces_and_the_last_change_wins(self, site: Site) -> None:
        queues = [site.queue(f"q{number}") for number in range(2000)]
        site.turn()
        policies = site.broker.directory.policies
        site.broker.engine.requests.renew()
        put(site, max_length=5, turn=False)
        put(site, max_length=7, turn=False)
        followed = sum(queue.options.max_length is not None for queue in queues)
        assert 0 < followed < 2000
        assert not policies.is_followed("/")
        assert site.queue("new").options.max_length == 7
        turns = 0
        while not policies.is_followed("/"):
            site.broker.engine.turn.end()
            turns += 1
        assert turns > 5
        assert {queue.options.max_length for queue in queues} == {7}
        assert len(site.records(Kind.POLICIES_APPLIED)) == 1

    def test_queues_and_virtual_hosts_that_are_deleted_meanwhile_are_left_out(self, site: Site) -> None:
        for number in range(2000):
            site.queue(f"q{number}")
        site.turn()
        put(site, max_length=5, turn=False)
        site.broker.directory.delete_queue(site.vhost.queue("q1999"))
        site.broker.directory.delete_vhost("/")
        site.turn()
        assert site.records(Kind.POLICIES_APPLIED) == []

    def test_streams_of_a_topic_have_policies_of_their_own(self, site: Site) -> None:
        put(site, "p", "t-1", max_length_bytes=10)
        arguments = {"x-partitions": 3}
        site.broker.directory.declare_exchange(site.vhost, "t", "x-partitioned", durable=True, arguments=arguments)
        limits = {name: queue.options.max_length_bytes for name, queue in site.vhost.queues.items()}
        assert sorted(limit is not None for limit in limits.values()) == [False, False, True]


class TestRecords:
    def test_policies_survive_a_restart_and_a_snapshot(self, site: Site) -> None:
        site.queue()
        put(site, max_length=2, priority=3, apply_to="queues")
        put(site, "o", operator=True, max_length=1)
        put(site, "gone", max_length=9)
        remove(site, "gone")
        for again in (site.restart(), self.after_snapshot(site)):
            policies = again.broker.directory.policies
            assert policies.policy("/", "p", operator=False).fields()["priority"] == 3
            assert names(again.vhost.queue("q")) == ("p", "o")
            again.publish("q", b"1", b"2")
            again.turn()
            assert again.contents() == [b"2"]
            with pytest.raises(BrokerError, match="no policy 'gone' in vhost '/'"):
                policies.policy("/", "gone", operator=False)

    @staticmethod
    def after_snapshot(site: Site) -> Site:
        site.snapshot()
        return site.restart()

    def test_a_change_that_not_all_queues_followed_is_followed_after_a_restart(self, site: Site) -> None:
        for number in range(2000):
            site.queue(f"q{number}")
        site.turn()
        put(site, max_length=5, turn=False)
        site.sync()
        again = site.restart()
        assert {queue.options.max_length for queue in again.vhost.queues.values()} == {5}
        assert again.records(Kind.POLICIES_APPLIED) == []
        again.turn()
        assert list(map(decode_change, again.records(Kind.POLICIES_APPLIED))) == [{"vhost": "/"}]

    def test_the_same_policy_again_changes_nothing(self, site: Site) -> None:
        assert put(site, max_length=1)
        assert not put(site, max_length=1)
        assert len(site.records(Kind.POLICY_SET)) == 1
        assert not put(site, max_length=2)
        assert len(site.records(Kind.POLICY_SET)) == 2

    def test_the_policies_of_a_virtual_host_end_with_it(self, site: Site) -> None:
        put(site, max_length=1)
        site.broker.directory.delete_vhost("/")
        site.sync()
        again = site.restart()
        assert list(again.broker.directory.policies.of("/")) == []
        assert again.queue().options.max_length is None


class TestRefusals:
    @pytest.mark.rule("FAIR-3")
    def test_their_number_has_a_limit(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(registry, "MOST", 1)
        put(site, max_length=1)
        with pytest.raises(BrokerError, match="has 1 policies, the limit") as refused:
            put(site, "other", max_length=1)
        assert refused.value.condition is Condition.LIMIT_EXCEEDED
        put(site, max_length=2)
        put(site, operator=True, max_length=1)

    def test_while_memory_is_scarce_policies_can_be_changed_but_not_added(self, site: Site) -> None:
        put(site, max_length=1)
        site.broker.engine.scarcity = "low on memory"
        put(site, max_length=2)
        with pytest.raises(BrokerError, match="low on memory"):
            put(site, "other", max_length=1)

    def test_unknown_virtual_hosts_and_policies_are_refused(self, site: Site) -> None:
        with pytest.raises(BrokerError, match="no such vhost 'no'"):
            site.broker.directory.policies.put(Policy("no", "p", "", {"max-length": 1}))
        with pytest.raises(BrokerError, match="no operator policy 'p' in vhost '/'"):
            remove(site, operator=True)
        assert site.records(Kind.POLICY_SET) == []


def test_consumers_get_messages_while_limits_change(site: Site) -> None:
    queue = site.queue()
    _, sink = site.consume(queue, Sink())
    put(site, max_length=1, message_ttl=10)
    site.publish("q", b"1", b"2", b"3")
    site.turn()
    assert sink.contents == [b"1", b"2", b"3"]


@pytest.mark.rule("DTX-8")
@pytest.mark.parametrize("limited", ["before", "after"])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_prepared_branch_commits_whatever_policies_say_afterwards(limited: str, restarts: bool) -> None:
    site = XaSite()
    if limited == "before":
        put(site, max_length=2, overflow="reject-publish")
    site.prepared(X, settle=0, publish=(b"1", b"2"))
    if limited == "before":
        remove(site)
        site.publish("to", b"0")
    else:
        site.publish("to", b"0")
        put(site, max_length=2, overflow="reject-publish")
    if restarts:
        site.sync()
        site = site.restart()
    assert site.coordinator.commit(X, one_phase=False).status is XaStatus.OK
    site.turn()
    assert site.contents("to") == [b"0", b"1", b"2"]
    assert site.broker.engine.promised == {}


@pytest.mark.rule("DTX-8")
def test_a_prepared_branch_has_room_in_a_queue_that_is_limited_later() -> None:
    site = XaSite()
    site.prepared(X, settle=0, publish=(b"1", b"2"))
    put(site, max_length=3, overflow="reject-publish")
    assert site.publish("to", b"3", b"4").refused == (1,)
