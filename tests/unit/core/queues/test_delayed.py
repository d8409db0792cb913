"""Delayed messages: the hidden queue, restarts, and the step into the queues."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from escrowmq.core.branches.branch import Publication
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.messages.delay import LONGEST
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.messages.pager import LogPager
from escrowmq.core.queues import portions
from escrowmq.core.queues.availability import RETRY_MS
from escrowmq.core.queues.delayed import NAME, DelayedQueue
from escrowmq.core.records.kinds import Kind
from tests.unit.core.site import Site


class Json:
    """A format with the headers as JSON in the envelope."""

    keyed = False

    def annotated(self, content: bytes, annotations: Mapping[str, bytes]) -> bytes:
        raise AssertionError("nobody annotates its messages")

    def headers(self, envelope: Envelope, content: bytes) -> Mapping[str, Any]:
        return json.loads(envelope.header or b"{}")  # type: ignore[no-any-return]

    def single_out(self, envelope: Envelope, content: bytes) -> tuple[Envelope, bytes]:
        return envelope, content


def started(site: Site | None = None) -> Site:
    site = site or Site()
    site.broker.formats[0] = Json()
    return site


@pytest.fixture
def site() -> Site:
    site = started()
    delaying(site)
    return site


def delaying(site: Site, kind: str = "direct", queue: str = "q") -> None:
    """Declare an exchange `x` that delays, and bind a queue."""
    site.queue(queue)
    site.broker.directory.declare_exchange(
        site.vhost, "x", "x-delayed-message", durable=True, arguments={"x-delayed-type": kind}
    )
    site.broker.directory.bind_queue(site.vhost, "x", queue, "k")


def send(site: Site, delay: object, *contents: bytes, key: str = "k", **envelope: Any) -> None:
    site.publish(key, *contents, exchange="x", header=json.dumps({"x-delay": delay}).encode(), **envelope)


def hidden(site: Site) -> DelayedQueue:
    queue = site.vhost.hidden.get("amq.delayed")
    assert isinstance(queue, DelayedQueue)
    return queue


@pytest.mark.rule("DLY-1")
def test_a_delayed_message_is_invisible_until_it_is_due_and_takes_its_position_then(site: Site) -> None:
    _, sink = site.consume(site.vhost.queue("q"))
    send(site, 1000, b"late")
    send(site, 0, b"early")
    site.after(999)
    assert sink.contents == [b"early"]
    assert list(site.vhost.queues) == ["q"]
    site.after(1)
    assert sink.contents == [b"early", b"late"]
    assert [entry.position for _, entry in sink.got] == [1, 2]
    assert len(hidden(site).order) == 0


@pytest.mark.rule("DLY-1")
def test_counts_do_not_include_delayed_messages(site: Site) -> None:
    send(site, 1000, b"a", b"b")
    site.turn()
    assert site.vhost.queue("q").ready == 0
    assert site.vhost.names_behind("", 9) == ["q"]
    site.after(1000)
    assert site.vhost.queue("q").ready == 2


@pytest.mark.rule("DLY-3")
def test_messages_due_at_the_same_time_arrive_in_publication_order(site: Site) -> None:
    send(site, 2000, b"1", b"2")
    send(site, 1000, b"0")
    site.after(500)
    send(site, 1500, b"3")
    send(site, 1500, b"4", durable=False)
    site.after(1500)
    assert site.contents() == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.rule("DLY-3")
@pytest.mark.parametrize("delay", ["soon", 1.5, LONGEST + 1])
def test_a_delay_that_is_not_understood_is_refused_and_nothing_is_published(site: Site, delay: object) -> None:
    with pytest.raises(BrokerError) as caught:
        send(site, delay, b"x")
    assert caught.value.condition is Condition.PRECONDITION_FAILED
    assert not site.vhost.hidden


@pytest.mark.rule("DLY-2")
@pytest.mark.parametrize("snapshot", [False, True])
def test_delayed_messages_survive_a_restart_and_arrive_once(site: Site, snapshot: bool) -> None:
    for i in range(300):
        send(site, 1000 + 1000 * (i % 200), b"%d" % i)
    site.after(50_000)
    if snapshot:
        site.snapshot()
    site.sync()
    again = started(site.restart())
    assert len(hidden(again).order) == 300 - 2 * 50
    again.after(0)
    assert len(again.contents()) == 100
    again.after(200_000)
    assert sorted(again.contents(), key=int) == [b"%d" % i for i in range(300)]
    assert again.contents() == sorted(again.contents(), key=lambda body: (int(body) % 200, int(body)))
    last = started(again.restart())
    last.after(1_000_000)
    assert len(last.contents()) == 300
    assert last.live() == 300


@pytest.mark.rule("DLY-2")
@pytest.mark.parametrize("snapshot", [False, True])
def test_a_recalled_message_stays_recalled_after_a_restart(site: Site, snapshot: bool) -> None:
    send(site, 90_000, b"kept", b"recalled", b"kept too")
    due = site.broker.engine.now + 90_000
    entry = hidden(site).find(2, due)
    assert entry is not None
    assert entry.content == b"recalled"
    assert hidden(site).recall(entry, due) == site.broker.log.end_lsn
    assert hidden(site).find(2, due) is None
    if snapshot:
        site.snapshot()
    site.sync()
    again = started(site.restart())
    assert hidden(again).find(2, due) is None
    again.after(100_000)
    assert again.contents() == [b"kept", b"kept too"]
    assert again.live() == 2


@pytest.mark.rule("DLY-2")
def test_the_step_from_waiting_to_queued_is_one_record(site: Site) -> None:
    send(site, 1000, b"a")
    site.after(1000)
    assert len(site.records(Kind.COMMIT)) == 1
    assert site.records(Kind.SETTLE) == []


@pytest.mark.rule("DLY-2")
def test_a_step_that_was_not_synced_is_repeated_after_a_crash(site: Site) -> None:
    send(site, 1000, b"a")
    site.turn()
    site.broker.engine.now += 1000
    site.turn(sync=False)
    assert site.contents() == [b"a"]
    again = started(site.restart())
    assert again.contents() == []
    again.turn()
    assert again.contents() == [b"a"]


@pytest.mark.rule("DLY-2")
def test_compaction_moves_delayed_messages(site: Site) -> None:
    for i in range(100):
        send(site, 100_000 if i % 10 else 1000, b"%d" % i * 50)
    site.after(1000)
    assert site.compact()
    site.sync()
    again = started(site.restart())
    for found in (site, again):
        found.after(100_000)
        assert len(found.contents()) == 100


@pytest.mark.rule("DLY-4")
@pytest.mark.parametrize("durable", [True, False])
def test_a_confirmed_delayed_message_is_on_disk(site: Site, durable: bool) -> None:
    made = Envelope("x", "k", b'{"x-delay": 1000}', durable=durable)
    receipt = site.broker.engine.publish(made, [b"a"], site.broker.engine.route(site.vhost, made))
    assert receipt.lsn > site.journal.synced_lsn
    site.sync()
    again = started(site.restart())
    again.after(1000)
    assert again.contents() == [b"a"]


@pytest.mark.rule("DLY-4")
def test_a_committed_delayed_message_waits_from_its_commit(site: Site) -> None:
    branch = site.begin()
    made = Envelope("x", "k", b'{"x-delay": 1000}', durable=True)
    queues = site.broker.engine.route(site.vhost, made)
    site.broker.transactions.enlist(branch, Publication(made, [b"a"], queues, mandatory=False))
    site.after(2000)
    assert len(hidden(site).order) == 0
    site.broker.transactions.commit(branch)
    site.turn()
    again = started(site.restart())
    again.after(999)
    assert again.contents() == []
    again.after(1)
    assert again.contents() == [b"a"]


@pytest.mark.parametrize(("kind", "key"), [("direct", "k"), ("fanout", "any"), ("topic", "k"), ("headers", "any")])
def test_every_type_can_be_delayed(kind: str, key: str) -> None:
    site = started()
    delaying(site, kind)
    send(site, 10, b"late", key=key)
    send(site, -10, b"at once", key=key)
    site.turn()
    assert site.contents() == [b"at once"]
    site.after(10)
    assert site.contents() == [b"at once", b"late"]


def test_a_message_is_routed_when_it_is_due(site: Site) -> None:
    send(site, 1000, b"a")
    site.queue("new")
    site.broker.directory.bind_queue(site.vhost, "x", "new", "k")
    site.broker.directory.unbind_queue(site.vhost, "x", "q", "k")
    site.after(1000)
    assert (site.contents(), site.contents("new")) == ([], [b"a"])


def test_a_message_whose_exchange_is_gone_is_dropped(site: Site) -> None:
    send(site, 1000, b"a")
    send(site, 1000, b"b", key="unknown")
    site.broker.directory.delete_exchange(site.vhost, "x")
    site.after(1000)
    assert (len(hidden(site).order), site.contents(), site.live()) == (0, [], 0)


def test_the_time_to_live_begins_when_the_message_is_due(site: Site) -> None:
    send(site, 1000, b"a", ttl=100)
    site.after(1000)
    site.after(99)
    assert site.contents() == [b"a"]
    site.after(2)
    assert site.contents() == []


def test_many_messages_that_are_due_leave_in_pieces(site: Site) -> None:
    for i in range(1000):
        send(site, 1000, b"%d" % i)
    site.broker.engine.now += 1000
    site.broker.engine.run_deadlines()
    parts = []
    while not site.contents():
        site.broker.engine.turn.end()
        parts.append(len(site.contents()))
    assert 0 < parts[-1] < 1000
    assert site.broker.engine.turn.unfinished
    site.turn()
    assert site.contents() == [b"%d" % i for i in range(1000)]


@pytest.mark.rule("FAIR-1", "DLY-1")
def test_fewer_messages_leave_together_if_they_go_to_many_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portions, "TOGETHER", 20)
    site = started()
    delaying(site, kind="fanout")
    for number in range(9):
        site.queue(f"f{number}")
        site.broker.directory.bind_queue(site.vhost, "x", f"f{number}", "")
    for number in range(7):
        send(site, 100, b"%d" % number)
    site.sync()
    site.now += 200
    site.broker.engine.run_deadlines()
    seen = [0]
    while seen[-1] < 7:
        site.broker.engine.turn.end()
        seen.append(site.vhost.queue("f8").ready)
        site.broker.engine.budget.left = 0
    site.sync()
    assert len(site.records(Kind.COMMIT)) == 4, "two messages at a time, to ten queues each"
    for running in (site, started(site.restart())):
        assert [running.contents(f"f{number}") for number in range(9)] == [[b"%d" % i for i in range(7)]] * 9


def test_clients_cannot_reach_the_hidden_queue(site: Site) -> None:
    send(site, 1000, b"a")
    with pytest.raises(BrokerError) as caught:
        site.queue(NAME)
    assert caught.value.condition is Condition.ACCESS_REFUSED
    with pytest.raises(BrokerError):
        site.vhost.queue(NAME)
    assert site.broker.engine.route(site.vhost, Envelope("", NAME)) == ()


def test_the_hidden_queue_ends_with_its_virtual_host() -> None:
    site = started()
    site.broker.directory.add_vhost("other")
    other = site.broker.directory.vhost("other")
    queue = site.broker.engine.delays.hold(other, {"x-delay": 5})
    assert queue is not None
    site.broker.engine.publish(Envelope("x", "k", b'{"x-delay": 5}', durable=True), [b"a"], [queue])
    site.broker.directory.delete_vhost("other")
    site.turn()
    assert site.live() == 0
    again = started(site.restart())
    again.after(10)
    assert list(again.broker.directory.vhosts) == ["/"]


def test_a_number_of_a_queue_is_not_used_twice(site: Site) -> None:
    send(site, 1000, b"a")
    site.sync()
    again = started(site.restart())
    assert again.queue("later").ident not in {hidden(again).ident, again.vhost.queue("q").ident}


def test_messages_that_cannot_be_read_wait(site: Site) -> None:
    bodies = [b"%02d" % i * 1000 for i in range(10)]
    for body in bodies:
        send(site, 1000, body)
    site.sync()
    again = started(site.restart())
    for name in again.storage.names():
        at = again.storage.read(name, 0, again.storage.size(name)).find(bodies[5])
        if at >= 0:
            again.storage.faults.unreadable.setdefault(name, set()).add((at + 1000) // 512)
    pager = again.broker.engine.pager
    assert isinstance(pager, LogPager)
    pager._chunks.clear()
    pager._chunk = b""
    again.after(1000)
    assert hidden(again).fault
    assert len(again.contents()) < 10
    again.storage.faults.unreadable.clear()
    again.after(RETRY_MS + 1)
    assert again.contents() == bodies


def test_an_exchange_that_delays_cannot_be_bound_to_another(site: Site) -> None:
    with pytest.raises(BrokerError, match="not delayed") as caught:
        site.broker.directory.bind_exchange(site.vhost, "amq.fanout", "x", "")
    assert caught.value.condition is Condition.PRECONDITION_FAILED


@pytest.mark.rule("DLY-4")
def test_a_large_transaction_of_delayed_messages(site: Site) -> None:
    branch = site.begin()
    for n in range(3000):
        made = Envelope("x", "k", b'{"x-delay": %d}' % (1000 + n % 3), durable=True)
        queues = site.broker.engine.route(site.vhost, made)
        site.broker.transactions.enlist(branch, Publication(made, [b"%d" % n], queues, mandatory=False))
    site.broker.transactions.commit(branch)
    site.turn()
    assert (len(hidden(site).order), site.contents()) == (3000, [])
    site.after(2000)
    assert site.contents() == sorted([b"%d" % n for n in range(3000)], key=lambda body: (int(body) % 3, int(body)))
