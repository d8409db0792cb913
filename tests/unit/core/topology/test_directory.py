"""Names: declaration, deletion, ownership, and their restoration at a restart."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.budget import TURN
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.queues.queue import Session
from escrowmq.core.records.changes import encode_change
from escrowmq.core.records.kinds import Kind
from escrowmq.core.topology.directory import Declaration
from tests.unit.core.site import Sink, Site


@pytest.fixture
def site() -> Site:
    return Site()


def topology(site: Site) -> list[tuple[Kind, dict[str, Any]]]:
    """Return all durable names and their attributes."""
    directory = site.broker.directory
    return sorted(directory.topology_records(directory.durable_queues()), key=repr)


class TestVirtualHosts:
    def test_an_added_virtual_host_is_empty(self, site: Site) -> None:
        assert site.broker.directory.add_vhost("two")
        assert not site.broker.directory.add_vhost("two")
        site.sync()
        assert set(site.restart().broker.directory.vhosts) == {"/", "two"}

    def test_deleting_a_virtual_host_deletes_everything_in_it(self, site: Site) -> None:
        queue = site.queue()
        site.publish("q", b"x")
        site.broker.directory.declare_exchange(site.vhost, "x", "topic", durable=True)
        site.broker.directory.bind_queue(site.vhost, "x", "q", "#")
        site.broker.directory.record_access(site.broker.access.add_user("u", "hash"))
        site.broker.directory.record_access(site.broker.access.set_permission("u", "/", "", "", ""))
        site.broker.directory.delete_vhost("/")
        site.turn()
        assert queue.deleted
        assert site.live() == 0
        again = Site(site.storage)
        assert again.vhost.queues == {}
        assert "x" not in again.vhost.exchanges
        assert again.broker.access.permissions == {}

    def test_a_missing_virtual_host_is_refused(self, site: Site) -> None:
        for do in (site.broker.directory.vhost, site.broker.directory.delete_vhost):
            with pytest.raises(BrokerError, match="no such vhost 'no'") as refused:
                do("no")
            assert refused.value.condition is Condition.NOT_FOUND


class TestQueues:
    def test_a_queue_can_be_declared_without_a_name(self, site: Site) -> None:
        names = {site.queue("").name for _ in range(100)}
        assert len(names) == 100
        assert all(name.startswith("amq.gen-") and len(name) == 30 for name in names)

    def test_a_generated_name_can_be_declared_again(self, site: Site) -> None:
        name = site.queue("").name
        assert site.queue(name).name == name
        with pytest.raises(BrokerError, match="reserved prefix"):
            site.queue("amq.gen-mine")

    def test_declaring_again_requires_the_same_attributes(self, site: Site) -> None:
        queue = site.queue(arguments={"x-max-length": 5})
        before = site.journal.end_lsn
        assert site.queue(arguments={"x-max-length": 5}) is queue
        with pytest.raises(BrokerError, match="inequivalent arg 'x-max-length'"):
            site.queue()
        with pytest.raises(BrokerError, match="inequivalent arg 'durable'"):
            site.queue(arguments={"x-max-length": 5}, durable=False)
        assert site.journal.end_lsn == before

    @pytest.mark.rule("EXC-1")
    def test_the_end_of_a_session_deletes_its_exclusive_queues(self, site: Site) -> None:
        session = Session("one")
        queue = site.queue("mine", exclusive=True, session=session)
        site.queue("ours", session=session)
        site.broker.directory.delete_queue(site.queue("gone", exclusive=True, session=session))
        site.broker.directory.end_session(session)
        assert set(site.vhost.queues) == {"ours"}
        assert queue.deleted
        assert not session.exclusive

    @pytest.mark.rule("EXC-2")
    def test_declaring_another_sessions_exclusive_queue_is_refused(self, site: Site) -> None:
        site.queue(exclusive=True, session=Session("one"))
        with pytest.raises(BrokerError) as refused:
            site.queue(exclusive=True, session=Session("two"))
        assert refused.value.condition is Condition.RESOURCE_LOCKED

    def test_deletion_can_require_an_empty_or_unused_queue(self, site: Site) -> None:
        queue = site.queue()
        site.publish("q", b"x")
        with pytest.raises(BrokerError, match="queue 'q' in vhost '/' not empty"):
            site.broker.directory.delete_queue(queue, if_empty=True)
        consumer, sink = site.consume(queue)
        with pytest.raises(BrokerError, match="queue 'q' in vhost '/' in use"):
            site.broker.directory.delete_queue(queue, if_unused=True)
        site.turn()
        site.broker.engine.unsubscribe(consumer)
        assert site.broker.directory.delete_queue(queue, if_empty=True, if_unused=True) == 0
        site.broker.engine.settle(consumer, [sink.got[0][1]], Disposition.ACCEPTED)
        site.turn()
        assert (site.live(), site.restart().vhost.queues) == (0, {})

    def test_deleting_tells_consumers_and_frees_their_window(self, site: Site) -> None:
        queue = site.queue()
        site.publish("q", b"x", b"y")
        consumer, sink = site.consume(queue, credit=1)
        site.turn()
        assert site.broker.directory.delete_queue(queue) == 1
        assert sink.gone == [consumer]
        site.broker.engine.unsubscribe(consumer)
        assert site.live() == 1, "unacknowledged messages can still be settled"

    def test_settlements_of_the_turn_are_logged_before_the_deletion(self, site: Site) -> None:
        queue = site.queue()
        site.publish("q", b"x")
        site.broker.engine.get(queue, auto_settle=True)
        site.broker.directory.delete_queue(queue)
        site.turn()
        kinds = [kind for _, kind, _ in site.restart().replayed]
        assert kinds[-2:] == [Kind.SETTLE, Kind.QUEUE_DELETED]

    def test_a_purge_removes_ready_messages(self, site: Site) -> None:
        queue = site.queue()
        site.publish("q", *[b"x"] * 5)
        site.publish("q", b"y", durable=False)
        held = site.broker.engine.get(queue, auto_settle=False)
        assert site.broker.directory.purge(queue) == 5
        assert site.broker.directory.purge(queue) == 0
        site.turn()
        again = site.restart()
        assert held is not None
        assert again.ready(again.vhost.queue("q")) == [(1, b"x", True)]

    @pytest.mark.parametrize("limit", [0, 1 << 20])
    def test_a_purge_removes_paged_messages(self, limit: int) -> None:
        site = Site(resident_limit=limit)
        queue = site.queue()
        for i in range(30):
            site.publish("q", b"x", durable=bool(i % 3))
        assert site.broker.directory.purge(queue) == 30
        site.turn()
        assert (site.live(), site.restart().contents()) == (0, [])

    def test_ids_of_queues_are_never_reused(self, site: Site) -> None:
        first = site.queue("one").ident
        site.broker.directory.delete_queue(site.vhost.queue("one"))
        site.snapshot()
        again = site.restart()
        assert again.queue("two").ident > first


@pytest.mark.rule("FAIR-1")
class TestManyObjects:
    def test_a_large_deletion_is_seen_at_once_and_completed_in_several_turns(self, site: Site) -> None:
        directory, vhost = site.broker.directory, site.vhost
        directory.declare_exchange(vhost, "x", "direct", durable=True, auto_delete=True)
        queue = site.queue("q")
        for number in range(1500):
            directory.bind_queue(vhost, "x", "q", f"{number}")
        directory.delete_queue(queue)
        assert "q" not in vhost.queues
        assert list(vhost.bindings()) == []
        left = [len(vhost.exchanges["x"].bindings)]
        while "x" in vhost.exchanges:
            site.broker.engine.turn.end()
            exchange = vhost.exchanges.get("x")
            left.append(0 if exchange is None else len(exchange.bindings))
        assert len(left) > 2
        assert max(before - after for before, after in itertools.pairwise(left)) <= TURN
        site.sync()
        assert "x" not in site.restart().vhost.exchanges

    def test_the_consumers_of_a_deleted_queue_are_told_in_several_turns(self, site: Site) -> None:
        queue, sink = site.queue("q"), Sink()
        for _ in range(1500):
            site.broker.engine.subscribe(queue, sink)
        site.broker.directory.delete_queue(queue)
        told = [len(sink.gone)]
        while queue.consumers:
            site.broker.engine.turn.end()
            told.append(len(sink.gone))
        assert told[-1] == 1500
        assert max(after - before for before, after in itertools.pairwise([0, *told])) <= TURN

    def test_a_deletion_in_progress_ends_with_its_virtual_host(self, site: Site) -> None:
        site.broker.directory.declare_exchange(site.vhost, "x", "direct", durable=True, auto_delete=True)
        queue = site.queue("q")
        for number in range(1500):
            site.broker.directory.bind_queue(site.vhost, "x", "q", f"{number}")
        site.broker.directory.delete_queue(queue)
        site.broker.directory.delete_vhost("/")
        site.broker.directory.add_vhost("/")
        while site.broker.engine.turn.unfinished:
            site.turn()
        site.sync()
        assert "x" not in Site(site.storage).vhost.exchanges

    def test_the_bindings_of_a_deleted_virtual_host_are_freed_in_several_turns(self, site: Site) -> None:
        vhost = site.vhost
        for number in range(1500):
            site.broker.directory.bind_exchange(vhost, "amq.direct", "amq.fanout", f"{number}")
        bindings = vhost.exchanges["amq.direct"].bindings
        site.broker.directory.delete_vhost("/")
        left = [1500, len(bindings)]
        while site.broker.engine.turn.unfinished:
            site.broker.engine.turn.end()
            left.append(len(bindings))
        assert left[-1] == 0
        assert max(before - after for before, after in itertools.pairwise(left)) <= TURN + vhost.unbinding.most

    def test_a_stream_of_a_topic_is_recognised_among_queues_of_similar_names(self, site: Site) -> None:
        directory, vhost = site.broker.directory, site.vhost
        site.broker.topics.declare(vhost, "t", 2)
        for name in ("t-2", "t-", "t-x", "t-01"):
            directory.delete_queue(site.queue(name))
        with pytest.raises(BrokerError, match="is a stream of topic 't'"):
            directory.delete_queue(vhost.queue("t-1"))


class TestExchanges:
    def test_an_auto_delete_exchange_is_deleted_with_its_last_bound_queue(self, site: Site) -> None:
        site.broker.directory.declare_exchange(site.vhost, "x", "direct", durable=True, auto_delete=True)
        site.broker.directory.declare_exchange(site.vhost, "up", "fanout", durable=True)
        site.broker.directory.bind_exchange(site.vhost, "up", "x", "")
        site.broker.directory.bind_queue(site.vhost, "x", site.queue().name, "k")
        site.broker.directory.delete_queue(site.vhost.queue("q"))
        site.sync()
        for running in (site, site.restart()):
            assert "x" not in running.vhost.exchanges
            assert list(running.vhost.bindings()) == []

    def test_transient_names_are_not_logged(self, site: Site) -> None:
        before = site.journal.end_lsn
        site.broker.directory.declare_exchange(site.vhost, "x", "direct")
        site.queue("passing", durable=False)
        site.broker.directory.bind_queue(site.vhost, "x", "passing", "")
        site.broker.directory.bind_queue(site.vhost, "amq.direct", "passing", "")
        site.broker.directory.unbind_queue(site.vhost, "amq.direct", "passing", "")
        site.broker.directory.delete_exchange(site.vhost, "x")
        site.broker.directory.delete_queue(site.vhost.queue("passing"))
        assert site.journal.end_lsn == before


@pytest.mark.parametrize(
    ("kind", "arguments", "to_exchange", "noted"),
    [
        ("direct", {}, False, False),
        ("direct", {}, True, True),
        ("direct", {"alternate-exchange": "amq.fanout"}, False, True),
        ("x-consistent-hash", {}, False, True),
    ],
)
def test_a_transient_binding_that_changes_routes_is_noted_once(
    site: Site, kind: str, arguments: dict[str, object], to_exchange: bool, noted: bool
) -> None:
    directory, vhost = site.broker.directory, site.vhost
    directory.declare_exchange(vhost, "x", kind, durable=True, arguments=arguments)
    directory.declare_exchange(vhost, "passing", "fanout")
    site.queue("passing", durable=False)
    bind = directory.bind_exchange if to_exchange else directory.bind_queue
    for weight in ("1", "2"):
        bind(vhost, "x", "passing", weight)
    fields = encode_change(vhost="/", name="x")
    assert site.records(Kind.TRANSIENT_BOUND) == [fields] * noted
    assert site.restart().vhost.exchanges["x"].bound_transiently is noted
    site.snapshot()
    assert site.restart().vhost.exchanges["x"].bound_transiently is noted


names = st.sampled_from("abc")
steps = st.one_of(
    st.tuples(st.just("queue"), names, st.booleans()),
    st.tuples(st.just("delete queue"), names),
    st.tuples(st.just("exchange"), names, st.booleans(), st.booleans()),
    st.tuples(st.just("delete exchange"), names),
    st.tuples(st.just("bind"), names, names),
    st.tuples(st.just("bind exchange"), names, names),
    st.tuples(st.just("unbind"), names, names),
    st.tuples(st.just("unbind exchange"), names, names),
    st.tuples(st.just("publish"), names),
    st.tuples(st.just("snapshot")),
)


def do(site: Site, step: tuple[Any, ...]) -> None:
    broker, vhost = site.broker, site.vhost
    match step:
        case ("queue", name, durable):
            site.queue(name, durable=durable)
        case ("delete queue", name):
            broker.directory.delete_queue(vhost.queue(name))
        case ("exchange", name, durable, auto_delete):
            broker.directory.declare_exchange(vhost, name, "topic", durable=durable, auto_delete=auto_delete)
        case ("delete exchange", name):
            broker.directory.delete_exchange(vhost, name)
        case ("bind", source, name):
            broker.directory.bind_queue(vhost, source, name, "k", {"x": b"\x00"})
        case ("bind exchange", source, name):
            broker.directory.bind_exchange(vhost, source, name, "k")
        case ("unbind", source, name):
            broker.directory.unbind_queue(vhost, source, name, "k", {"x": b"\x00"})
        case ("unbind exchange", source, name):
            broker.directory.unbind_exchange(vhost, source, name, "k")
        case ("publish", key):
            site.publish(key, b"x")
        case _:
            site.turn()
            site.snapshot()


@given(st.lists(steps, max_size=25))
def test_a_restart_restores_every_durable_name(plan: list[tuple[Any, ...]]) -> None:
    site = Site()
    for step in plan:
        with contextlib.suppress(BrokerError):  # the name is missing, or the attributes differ
            do(site, step)
    site.turn()
    again = site.restart()
    assert topology(again) == topology(site)
    for queue in site.broker.directory.durable_queues():
        assert again.contents(queue.name) == site.contents(queue.name)
    again.snapshot()
    assert topology(again.restart()) == topology(site)


@given(st.lists(steps, max_size=25))
def test_a_restart_amid_deletions_restores_every_durable_name(plan: list[tuple[Any, ...]]) -> None:
    """Only an exchange that was about to be deleted automatically may be left, without bindings."""
    site = Site()
    site.vhost.unbinding.most = 1
    for step in plan:
        site.broker.engine.requests.left = 0  # so that a deletion does no more than it must at once
        with contextlib.suppress(BrokerError):  # the name is missing, or the attributes differ
            do(site, step)
    site.sync()
    again = site.restart()
    while site.broker.engine.turn.unfinished:
        site.turn()
    extra = [record for record in topology(again) if record not in topology(site)]
    assert [record for record in topology(again) if record not in extra] == topology(site)
    for kind, fields in extra:
        assert kind is Kind.EXCHANGE_DECLARED
        assert fields["auto_delete"]
        assert not again.vhost.exchanges[fields["name"]].bindings


@pytest.mark.rule("FAIR-3")
class TestScarcity:
    def test_nothing_new_is_declared_or_bound(self, site: Site) -> None:
        directory, vhost = site.broker.directory, site.vhost
        site.queue("q")
        before = topology(site)
        site.broker.engine.scarcity = "low on disk"
        for grow in (
            lambda: directory.declare_queue(vhost, "new", Declaration(), Session("s")),
            lambda: directory.declare_exchange(vhost, "new", "direct"),
            lambda: directory.bind_queue(vhost, "amq.topic", "q", "k"),
            lambda: directory.bind_exchange(vhost, "amq.topic", "amq.fanout", "k"),
        ):
            with pytest.raises(BrokerError, match=r"no room for .*new|binding.*low on disk; try again") as raised:
                grow()
            assert raised.value.condition is Condition.LIMIT_EXCEEDED
        assert topology(site) == before
        site.broker.engine.scarcity = ""
        directory.bind_queue(vhost, "amq.topic", "q", "k")

    def test_what_exists_is_found_and_can_be_deleted(self, site: Site) -> None:
        directory, vhost = site.broker.directory, site.vhost
        queue = site.queue("q")
        directory.declare_exchange(vhost, "e", "direct", durable=True)
        directory.bind_queue(vhost, "e", "q", "k", {"x": 1})
        directory.bind_exchange(vhost, "e", "amq.fanout", "k")
        site.broker.engine.scarcity = "low on memory"
        directory.declare_exchange(vhost, "e", "direct", durable=True)
        directory.bind_queue(vhost, "e", "q", "k", {"x": 1})
        directory.bind_exchange(vhost, "e", "amq.fanout", "k")
        with pytest.raises(BrokerError) as raised:
            directory.declare_exchange(vhost, "missing", "", passive=True)
        assert raised.value.condition is Condition.NOT_FOUND
        directory.unbind_queue(vhost, "e", "q", "k", {"x": 1})
        directory.delete_exchange(vhost, "e")
        directory.delete_queue(queue)
        assert "q" not in vhost.queues
        assert "e" not in vhost.exchanges
