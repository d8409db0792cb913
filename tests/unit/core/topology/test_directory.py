"""Names: declaration, deletion and ownership."""

from __future__ import annotations

import pytest

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.queues.queue import Session
from escrowmq.core.topology.declaration import Declaration
from tests.unit.core.site import Site
from tests.unit.core.topology.durable_names import topology


@pytest.fixture
def site() -> Site:
    return Site()


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
