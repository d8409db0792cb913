"""Consumer groups: leases, handles, retries, dead letters, filters, progress, locks and waiting members."""

from __future__ import annotations

import pytest

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.groups.options import GroupOptions
from escrowmq.core.messages.entry import Entry
from escrowmq.core.queues.stream import StreamQueue
from escrowmq.core.records.kinds import Kind
from tests.unit.core.groups.consuming import INVISIBLE, Consuming, Member, said
from tests.unit.core.site import Site


def odd(stream: StreamQueue, entry: Entry) -> bool:
    return int(entry.content) % 2 == 1


class TestLeases:
    @pytest.mark.rule("GRP-1")
    def test_each_group_gets_every_message(self) -> None:
        c = Consuming(partitions=3)
        other = c.site.broker.groups.declare("/", "other")
        for i in range(6):
            c.publish(str(i), partition=i % 3)
        assert sorted(c.bodies()) == sorted(c.bodies(group=other)) == list("012345")
        assert c.bodies() == c.bodies(group=other) == ""

    @pytest.mark.rule("GRP-2")
    def test_a_leased_message_is_invisible_until_its_lease_runs_out(self) -> None:
        c = Consuming()
        c.publish("a", "b")
        (first,) = c.lease(1)
        assert (first.attempts, c.bodies()) == (1, "b")
        c.site.after(INVISIBLE - 1)
        assert c.bodies() == ""
        c.site.after(1)
        again = c.lease()
        assert [(each.entry.content, each.attempts) for each in again] == [(b"a", 2), (b"b", 2)]

    @pytest.mark.rule("GRP-2")
    def test_a_handle_is_stale_once_its_lease_has_run_out(self) -> None:
        c = Consuming()
        c.publish("a")
        (lease,) = c.lease()
        c.site.after(INVISIBLE)
        assert c.settle(lease) == [False]
        (again,) = c.lease()
        assert c.settle(lease, again, again) == [False, True, False]
        c.site.after(10 * INVISIBLE)
        assert c.bodies() == ""

    @pytest.mark.rule("GRP-2")
    def test_a_changed_lease_has_a_new_handle(self) -> None:
        c = Consuming()
        c.publish("a")
        (lease,) = c.lease()
        handle, lsn = c.group.change(lease.handle, 5 * INVISIBLE)
        assert lsn == c.site.journal.end_lsn
        with pytest.raises(BrokerError, match="stale") as caught:
            c.group.change(lease.handle, 1)
        assert caught.value.condition is Condition.NOT_FOUND
        assert c.settle(lease) == [False]
        c.site.after(4 * INVISIBLE)
        assert c.bodies() == ""
        assert not c.group.settle([handle]).stale

    @pytest.mark.rule("GRP-2")
    def test_handles_of_others_are_refused(self) -> None:
        c = Consuming(partitions=2)
        c.publish("a")
        (lease,) = c.lease()
        wrong = [
            lease.handle._replace(group=9),
            lease.handle._replace(stream=c.streams[1].ident),
            lease.handle._replace(position=2),
            lease.handle._replace(generation=0),
        ]
        assert c.group.settle(wrong).stale == wrong
        assert c.settle(lease) == [True]

    @pytest.mark.rule("GRP-4")
    def test_a_failed_message_comes_back_after_the_back_off_of_the_group(self) -> None:
        c = Consuming(back_off_ms=(10, 50))
        c.publish("a")
        for attempt, wait in ((1, 10), (2, 50), (3, 50)):
            (lease,) = c.lease()
            assert lease.attempts == attempt
            c.group.give_back(lease.handle)
            c.site.after(wait - 1)
            assert c.lease() == []
            c.site.after(1)

    @pytest.mark.rule("FAIR-3")
    def test_messages_that_are_out_are_bounded(self) -> None:
        c = Consuming()
        c.group.limits.outstanding = 3
        c.publish(*"abcdefgh")
        first = c.lease(3)
        assert (said(first), c.bodies()) == ("abc", "")
        c.settle(first[1])
        assert c.bodies(1) == "d"

    @pytest.mark.rule("FAIR-3")
    def test_the_memory_of_leases_belongs_to_the_owner_of_the_group(self) -> None:
        c = Consuming()
        c.site.broker.holdings.user_limit = 16 * 1024
        c.publish(*"a" * 100)
        first = c.lease(40)
        with pytest.raises(BrokerError, match="user 'u' holds"):
            c.lease(40)
        c.settle(*first)
        assert len(c.lease(40)) == 40

    def test_streams_take_turns(self) -> None:
        c = Consuming(partitions=2)
        for partition, bodies in ((0, "abc"), (1, "xyz")):
            c.publish(*bodies, partition=partition)
        assert [c.bodies(1) for _ in range(6)] == list("axbycz")


class TestRestart:
    @pytest.mark.rule("GRP-1")
    @pytest.mark.rule("GRP-2")
    @pytest.mark.parametrize("compacted", [False, True])
    def test_leases_handles_and_attempts_survive(self, compacted: bool) -> None:
        c = Consuming()
        c.publish(*"abcd")
        a, b, c_ = c.lease(3)
        assert c.settle(b) == [True]
        c.group.give_back(c_.handle, 50)
        c.site.turn()
        if compacted:
            c.site.snapshot()
        c = c.restart()
        assert c.bodies(9, 10 * INVISIBLE) == "d"
        c.site.after(50)
        (again,) = c.lease()
        assert (said([again]), again.attempts) == ("c", 2)
        assert c.settle(a, b, c_, again) == [True, False, False, True]
        assert c.group.progress(c.stream) == 4

    @pytest.mark.rule("GRP-2")
    def test_an_unsynced_lease_is_lost_and_its_handle_is_stale(self) -> None:
        c = Consuming()
        c.publish("a")
        c.site.turn()
        (lost,) = c.lease()
        c = c.restart()
        (lease,) = c.lease()
        assert lease.handle != lost.handle
        assert c.settle(lost, lease) == [False, True]

    @pytest.mark.rule("GRP-5")
    def test_settling_out_of_order_does_not_lose_what_is_before(self) -> None:
        c = Consuming()
        c.publish(*"abc")
        leases = c.lease()
        c.settle(leases[2])
        c.site.turn()
        c = c.restart()
        assert c.group.progress(c.stream) == 1
        c.site.after(INVISIBLE)
        assert c.bodies() == "ab"

    @pytest.mark.parametrize("compacted", [False, True])
    def test_options_locks_and_deletions_survive(self, compacted: bool) -> None:
        c = Consuming(fifo=True, dead_letter_topic="dead")
        doomed = c.site.broker.groups.declare("/", "doomed")
        assert c.group.lock(c.stream, "me", c.site.now + 100)
        c.site.broker.groups.delete(doomed)
        c.site.turn()
        if compacted:
            c.site.snapshot()
        c = c.restart()
        assert c.group.options == GroupOptions(fifo=True, dead_letter_topic="dead")
        assert not c.group.lock(c.stream, "you", c.site.now + 100)
        assert c.site.broker.groups.find("/", "doomed") is None
        assert c.site.broker.groups.declare("/", "new").number == 3


class TestFifo:
    @pytest.mark.rule("GRP-3")
    def test_messages_of_a_key_are_in_one_members_hands_at_a_time(self) -> None:
        c = Consuming(fifo=True)
        for body, key in (("a", "k"), ("b", "k"), ("x", "other"), ("c", "k")):
            c.publish(body, key=key)
        first = c.lease(1)
        assert (said(first), c.bodies(), c.bodies()) == ("a", "x", "")
        c.settle(*first)
        assert c.bodies() == "bc"

    @pytest.mark.rule("GRP-3")
    @pytest.mark.parametrize("restarted", [False, True])
    def test_the_order_holds_through_retries(self, restarted: bool) -> None:
        c = Consuming(fifo=True)
        for body in "abc":
            c.publish(body, key="k")
        a, b, later = c.lease()
        c.settle(a)
        c.group.give_back(b.handle, 50)
        c.site.turn()
        if restarted:
            c = c.restart()
        assert c.settle(later) == [False]
        assert c.bodies() == ""
        c.site.after(50)
        again = c.lease()
        assert [(said([each]), each.attempts) for each in again] == [("b", 2), ("c", 2)]

    @pytest.mark.rule("GRP-3")
    def test_a_lease_that_was_prolonged_does_not_let_later_messages_overtake(self) -> None:
        c = Consuming(fifo=True)
        c.publish("a", key="k")
        c.publish("b", key="k")
        _, b = c.lease()
        handle, _ = c.group.change(b.handle, 10 * INVISIBLE)
        c.site.after(INVISIBLE)
        assert c.bodies(1) == "a"
        assert c.group.settle([handle]).stale == [handle]
        assert c.bodies() == ""

    @pytest.mark.rule("GRP-3")
    def test_messages_without_a_key_are_in_order_within_their_stream(self) -> None:
        c = Consuming(fifo=True)
        c.publish("a", "b")
        assert (c.bodies(1), c.bodies()) == ("a", "")

    def test_a_group_can_become_fifo(self) -> None:
        c = Consuming()
        for body in "abc":
            c.publish(body, key="k")
        a, b = c.lease(2)
        c.site.broker.groups.declare("/", "g", GroupOptions(fifo=True))
        assert c.bodies() == ""
        c.settle(a, b)
        assert c.bodies() == "c"

    def test_a_group_that_is_not_fifo_any_more_gets_what_waited(self) -> None:
        c = Consuming(fifo=True)
        c.publish("a", key="k")
        c.publish("b", key="k")
        c.publish("x", key="other")
        assert (c.bodies(1), c.bodies()) == ("a", "x")
        c.site.broker.groups.declare("/", "g", GroupOptions())
        assert c.bodies() == "b"


class TestDeadLetters:
    @pytest.mark.rule("GRP-4")
    @pytest.mark.parametrize("fifo", [False, True])
    def test_the_last_attempt_ends_in_the_dead_letter_topic_in_one_step(self, fifo: bool) -> None:
        c = Consuming(fifo=fifo, max_attempts=2, dead_letter_topic="dead")
        dead = c.site.broker.topics.declare(c.site.vhost, "dead", 1)
        c.publish("a", key="k")
        c.publish("b", key="k")
        assert c.bodies(1) == "a"
        c.site.after(INVISIBLE)
        assert c.bodies(1) == "a"
        before = len(c.site.records(Kind.COMMIT))
        c.site.after(INVISIBLE)
        (entry,) = dead.streams[0].read(1, 9)
        assert (entry.content, entry.run.envelope.exchange) == (b"a", "dead")
        assert entry.run.envelope.deaths[0].reason == "delivery_limit"
        assert len(c.site.records(Kind.COMMIT)) == before + 1
        c = c.restart()
        assert c.group.progress(c.stream) == 2
        assert c.bodies() == "b"

    @pytest.mark.rule("GRP-4")
    def test_a_member_can_dead_letter_a_message(self) -> None:
        c = Consuming(dead_letter_topic="dead")
        dead = c.site.broker.topics.declare(c.site.vhost, "dead", 1)
        c.publish("a")
        (lease,) = c.lease()
        assert c.group.dead_letter(lease.handle) == c.site.journal.end_lsn
        with pytest.raises(BrokerError, match="stale"):
            c.group.dead_letter(lease.handle)
        assert [entry.content for entry in dead.streams[0].read(1, 9)] == [b"a"]
        assert c.group.progress(c.stream) == 2

    @pytest.mark.rule("GRP-4")
    def test_a_message_is_published_again_in_one_step_with_the_progress(self) -> None:
        c = Consuming()
        retries = c.site.broker.topics.declare(c.site.vhost, "retries", 1)
        c.publish("a", "b", "c")
        (entry,) = c.stream.read(2, 1)
        before = len(c.site.records(Kind.COMMIT))
        envelope = entry.run.envelope
        lsn = c.group.send_back(c.stream, 2, envelope, b"again", retries.streams)
        assert lsn == c.site.journal.end_lsn
        assert len(c.site.records(Kind.COMMIT)) == before + 1
        c.group.send_back(c.stream, 2, envelope, b"again", retries.streams)
        assert retries.streams[0].end == 2
        settled = c.group.settled_beyond(c.stream)
        assert settled is not None
        assert (c.group.progress(c.stream), settled.ranges()) == (1, [(2, 1)])
        c = c.restart()
        found = c.site.broker.topics.find(c.site.vhost, "retries")
        assert found is not None
        assert [entry.content for entry in found.streams[0].read(1, 9)] == [b"again"]
        assert c.bodies() == "ac"

    def test_a_message_before_the_progress_is_published_again_each_time(self) -> None:
        c = Consuming()
        retries = c.site.broker.topics.declare(c.site.vhost, "retries", 1)
        c.publish("a", "b")
        (entry,) = c.stream.read(1, 1)
        c.group.advance(c.stream, 2)
        for _ in range(2):
            c.group.send_back(c.stream, 1, entry.run.envelope, b"again", retries.streams)
        assert retries.streams[0].end == 3
        assert c.group.progress(c.stream) == 2

    def test_without_a_dead_letter_topic_a_message_is_offered_again_and_again(self) -> None:
        c = Consuming(max_attempts=1)
        c.publish("a")
        for attempt in (1, 2, 3):
            (lease,) = c.lease()
            assert lease.attempts == attempt
            with pytest.raises(BrokerError, match="has no dead-letter topic"):
                c.group.dead_letter(lease.handle)
            c.site.after(INVISIBLE)


class TestFilters:
    @pytest.mark.rule("GRP-6")
    def test_what_a_filter_passes_over_is_settled(self) -> None:
        c = Consuming()
        c.publish(*"012345")
        leases = c.lease(wants=odd)
        assert said(leases) == "135"
        c.settle(*leases)
        assert c.group.progress(c.stream) == 7
        assert c.bodies() == ""
        c.site.turn()
        assert c.restart().group.progress(c.stream) == 7

    @pytest.mark.rule("GRP-6")
    def test_a_retry_that_the_filter_does_not_want_is_settled(self) -> None:
        c = Consuming()
        c.publish("0")
        c.lease()
        c.site.after(INVISIBLE)
        assert c.bodies(wants=odd) == ""
        assert c.group.progress(c.stream) == 2

    @pytest.mark.rule("FAIR-1")
    def test_one_call_examines_a_bounded_number_of_messages(self) -> None:
        c = Consuming()
        c.publish(*["0"] * 2000, "1")
        calls = 1
        while not (leases := c.lease(wants=odd)):
            calls += 1
        assert said(leases) == "1"
        assert calls > 2


class TestProgress:
    @pytest.mark.rule("GRP-5")
    def test_progress_never_goes_back_and_is_recorded_once_a_turn(self) -> None:
        c = Consuming()
        c.publish(*"abcdef")
        assert c.group.progress(c.stream) is None
        assert [c.group.advance(c.stream, position) for position in (3, 5, 2, 99)] == [3, 5, 5, 7]
        c.site.turn()
        assert len(c.site.records(Kind.GROUP_PROGRESS)) == 1
        assert c.restart().group.progress(c.stream) == 7

    @pytest.mark.rule("GRP-5")
    def test_only_an_operator_resets_it(self) -> None:
        c = Consuming()
        c.publish(*"abc")
        leases = c.lease()
        c.settle(leases[0])
        assert c.group.reset(c.stream, 1) == c.site.journal.end_lsn
        assert c.settle(leases[1]) == [False]
        assert c.bodies() == "abc"
        c.group.reset(c.stream, 3)
        c.site.turn()
        assert c.restart().bodies() == "c"

    def test_a_reset_is_within_the_stream(self) -> None:
        c = Consuming()
        c.publish(*"abc")
        c.group.reset(c.stream, 99)
        assert c.group.progress(c.stream) == 4
        c.group.reset(c.stream, -1)
        assert c.group.progress(c.stream) == 1

    @pytest.mark.parametrize("fifo", [False, True])
    def test_a_cursor_moves_on_when_retention_drops_messages(self, fifo: bool) -> None:
        c = Consuming(Site(), fifo=fifo)
        c.site.broker.topics.delete(c.site.vhost, "t")
        c.site.broker.topics.declare(c.site.vhost, "t", 1, arguments={"x-max-length-bytes": 3})
        for body in "abc":
            c.publish(body)
        a = c.lease(2)[0]
        for body in "defg":
            c.publish(body)
        assert c.group.progress(c.stream) == 5
        assert c.settle(a) == [True]
        c.site.after(INVISIBLE)
        assert c.bodies() == "efg"
        c.site.turn()
        assert c.restart().group.progress(c.stream) == 5

    def test_a_lock_belongs_to_one_member_until_it_ends(self) -> None:
        c = Consuming()
        assert c.group.lock(c.stream, "a", c.site.now + 10)
        assert c.group.lock(c.stream, "a", c.site.now + 20)
        assert not c.group.lock(c.stream, "b", c.site.now + 10)
        assert not c.group.unlock(c.stream, "b")
        c.site.after(20)
        assert c.group.lock(c.stream, "b", c.site.now + 10)
        assert c.group.unlock(c.stream, "b")
        assert c.group.lock(c.stream, "a", c.site.now + 10)


class TestWaiting:
    def test_members_are_called_in_order_of_arrival_when_messages_arrive(self) -> None:
        c, calls = Consuming(partitions=2), list[str]()
        for name in "xyz":
            c.group.wait(c.streams, Member(name, calls, c))
        c.site.turn()
        assert calls == []
        c.publish("1")
        c.publish("2", partition=1)
        assert calls == []
        c.site.turn()
        assert calls == ["x1", "y2"]
        c.publish("3")
        c.site.turn()
        assert calls == ["x1", "y2", "z3"]

    def test_a_member_is_called_when_a_lease_runs_out(self) -> None:
        c, calls = Consuming(), list[str]()
        c.publish("1")
        c.lease()
        c.group.wait(c.streams, Member("x", calls, c))
        c.site.after(INVISIBLE - 1)
        assert calls == []
        c.site.after(1)
        assert calls == ["x1"]

    def test_a_member_is_called_when_a_key_becomes_free(self) -> None:
        c, calls = Consuming(fifo=True), list[str]()
        c.publish("1", key="k")
        c.publish("2", key="k")
        first = c.lease(1)
        assert c.lease() == []
        c.group.wait(c.streams, Member("x", calls, c))
        c.site.turn()
        assert calls == []
        c.settle(*first)
        c.site.turn()
        assert calls == ["x2"]

    def test_a_member_is_called_at_once_if_there_is_something(self) -> None:
        c, calls = Consuming(), list[str]()
        c.publish("1")
        c.group.wait(c.streams, Member("x", calls, c))
        c.site.turn()
        assert calls == ["x1"]

    def test_a_member_that_does_not_wait_any_more_is_not_called(self) -> None:
        c, calls = Consuming(), list[str]()
        member = Member("x", calls, c)
        c.group.wait(c.streams, member)
        c.group.stop_waiting(member)
        c.group.stop_waiting(member)
        c.publish("1")
        c.site.turn()
        assert calls == []

    @pytest.mark.parametrize("what", ["topic", "group", "virtual host"])
    def test_members_are_called_when_the_topic_or_the_group_is_deleted(self, what: str) -> None:
        c, calls = Consuming(), list[str]()
        streams = c.streams
        c.group.wait(streams, Member("x", calls, c, takes=False))
        if what == "topic":
            c.site.broker.topics.delete(c.site.vhost, "t")
            assert c.group.lease(streams, 9, 1).leases == []
            assert not c.group.cursors
        elif what == "group":
            c.site.broker.groups.delete(c.group)
            assert c.group.deleted
        else:
            c.site.broker.directory.delete_vhost("/")
            assert c.group.deleted
        c.site.turn()
        assert calls == ["x"]
