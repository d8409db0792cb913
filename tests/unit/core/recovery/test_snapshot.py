"""The records of a snapshot; test_replay.py tests that they rebuild the broker."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.queues.queue import Queue
from escrowmq.core.records.changes import decode_change
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.queue_state import QueueState, decode_queue_state
from escrowmq.core.recovery.snapshot import Capture, snapshot
from tests.unit.core.site import Site


def states(site: Site) -> dict[int, QueueState]:
    records = [(kind, b"".join(parts)) for kind, parts in snapshot(site.broker)]
    found = [decode_queue_state(payload) for kind, payload in records if kind is Kind.QUEUE_STATE]
    return {state.queue: state for state in found}


def rows(state: QueueState) -> list[tuple[int, int, int]]:
    """Position, LSN of the block, number in the block."""
    return [
        (first + i, lsn, index + i)
        for first, lsn, count, index in zip(state.firsts, state.lsns, state.counts, state.indexes, strict=True)
        for i in range(count)
    ]


def test_names_precede_their_messages() -> None:
    site = Site()
    site.queue("b")
    site.queue("a", durable=False)
    kinds = [kind for kind, _ in snapshot(site.broker)]
    assert kinds[0] is Kind.COUNTERS
    assert kinds[-1] is Kind.QUEUE_STATE
    assert kinds.count(Kind.QUEUE_STATE) == kinds.count(Kind.QUEUE_DECLARED) == 1
    counters = next(b"".join(parts) for kind, parts in snapshot(site.broker) if kind is Kind.COUNTERS)
    assert decode_change(counters) == {"next_queue": 3, "next_branch": 1}


@pytest.mark.parametrize("limit", [0, 400, 1 << 20])
def test_a_queue_state_has_ready_and_unacknowledged_messages(limit: int) -> None:
    site = Site(resident_limit=limit)
    queue = site.queue()
    site.publish("q", *[b"x"] * 10)
    site.publish("q", b"transient", durable=False)
    site.publish("q", b"y")
    consumer, sink = site.consume(queue, credit=4)
    site.broker.engine.holders[sink] = None
    site.turn()
    site.broker.engine.unsubscribe(consumer)
    site.broker.engine.requeue(consumer, [sink.got.pop(1)[1]])
    state = states(site)[queue.ident]
    assert [position for position, _, _ in rows(state)] == [*range(1, 11), 12]
    assert [index for _, _, index in rows(state)] == [*range(10), 0]
    assert (state.next_position, state.delivered_below) == (13, 5)
    assert state.deliveries == ([(2, 1)] if limit else []), "one that is not in memory counts as delivered once"


def test_unsynced_messages_are_included() -> None:
    site = Site()
    queue = site.queue()
    site.publish("q", b"a")
    branch = site.begin()
    site.broker.transactions.enlist(branch, site.publication("q", b"b", b"c"))
    site.broker.transactions.enlist(branch, site.publication("q", b"transient", durable=False))
    site.broker.transactions.commit(branch)
    assert [position for position, _, _ in rows(states(site)[queue.ident])] == [1, 2, 3]


def test_messages_of_a_priority_queue_are_in_order_of_position() -> None:
    site = Site(resident_limit=400)
    queue = site.queue(arguments={"x-max-priority": 5})
    for i in range(30):
        site.publish("q", b"x", priority=i * 7 % 6)
    assert [position for position, _, _ in rows(states(site)[queue.ident])] == list(range(1, 31))


def test_entries_that_are_alone_in_their_runs_have_a_reference_each() -> None:
    site = Site()
    queue = site.queue()
    site.publish("q", b"a", b"b")
    queue.order.take(1)  # so that the other one is not the first of its block
    for i in range(5):
        site.publish("q", b"x", durable=i != 2)
    state = states(site)[queue.ident]
    assert [(position, index) for position, _, index in rows(state)] == [(2, 1), (3, 0), (4, 0), (6, 0), (7, 0)]
    assert list(state.counts) == [1] * 5
    assert list(state.lsns) == [entry.run.lsn for entry in queue.order.in_memory() if entry.run.envelope.durable]


def test_neighbours_become_one_reference() -> None:
    site = Site()
    queue = site.queue()
    site.publish("q", *[b"x"] * 1000)
    site.publish("q", *[b"y"] * 1000)
    assert len(states(site)[queue.ident].firsts) == 2


def test_a_snapshot_has_the_state_at_the_time_of_the_call() -> None:
    site = Site()
    queue = site.queue()
    site.publish("q", b"a", b"b")
    taken = snapshot(site.broker)
    site.publish("q", b"c")
    site.broker.engine.get(queue, auto_settle=True)
    site.queue("later")
    records = list(taken)
    assert sum(kind is Kind.QUEUE_DECLARED for kind, _ in records) == 1
    state = decode_queue_state(b"".join(records[-1][1]))
    assert [position for position, _, _ in rows(state)] == [1, 2]
    assert state.next_position == 3


def encoded(records: Iterable[tuple[Kind, list[bytes]]]) -> list[tuple[Kind, bytes]]:
    return [(kind, b"".join(parts)) for kind, parts in records]


def queue_states(capture: Capture) -> dict[int, list[int]]:
    """Return the positions of the messages of each queue."""
    found = [decode_queue_state(payload) for kind, payload in encoded(capture.records()) if kind is Kind.QUEUE_STATE]
    return {state.queue: [position for position, _, _ in rows(state)] for state in found}


def test_a_capture_takes_a_bounded_number_of_queues_in_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site()
    for i in range(95):
        site.queue(f"q{i}")
    captured: list[Queue] = []
    capture_one = Capture._capture

    def counted(self: Capture, queue: Queue) -> int:
        captured.append(queue)
        return capture_one(self, queue)

    monkeypatch.setattr(Capture, "_capture", counted)
    capture = Capture(site.broker, piece=10)
    pieces = []
    while not capture.step():
        pieces.append(len(captured))
        captured.clear()
    assert pieces == [10] * 9
    assert len(captured) == 5
    assert encoded(capture.records()) == encoded(snapshot(site.broker))


def test_what_changes_after_it_was_captured_is_captured_again() -> None:
    site = Site()
    names = ("waiting", "published", "consumed", "returned", "purged", "deleted", "calm")
    changing = {name: site.queue(name) for name in names}
    for name in changing:
        site.publish(name, b"a", b"b")
    consumer, sink = site.consume(changing["returned"], credit=1)
    site.turn()
    capture = Capture(site.broker, piece=6)
    assert not capture.step()
    site.publish("published", b"c")
    site.broker.engine.get(changing["consumed"], auto_settle=True)
    site.broker.engine.unsubscribe(consumer)
    site.broker.engine.requeue(consumer, [sink.got.pop()[1]])
    site.broker.directory.purge(changing["purged"])
    site.broker.directory.delete_queue(changing["deleted"])
    late = site.queue("late")
    site.publish("late", b"x")
    site.turn()
    while not capture.step():
        pass
    found = queue_states(capture)
    ident = {name: queue.ident for name, queue in changing.items()}
    assert found == {
        ident["published"]: [1, 2, 3],
        ident["consumed"]: [2],
        ident["returned"]: [1, 2],
        ident["purged"]: [],
        ident["waiting"]: [1, 2],
        ident["calm"]: [1, 2],
        late.ident: [1],
    }


def test_a_capture_ends_although_every_queue_changes_in_each_turn() -> None:
    site = Site()
    queues = [site.queue(f"q{i}") for i in range(40)]
    capture = Capture(site.broker, piece=4)
    steps = 1
    while not capture.step():
        for queue in queues:
            site.publish(queue.name, b"x")
        site.turn()
        steps += 1
    assert steps < 50
    assert encoded(capture.records()) == encoded(snapshot(site.broker))


def test_records_are_of_the_last_step_whatever_happens_before_they_are_made() -> None:
    site = Site()
    queue = site.queue()
    site.publish("q", b"a", b"b")
    consumer, sink = site.consume(queue, credit=1)
    site.broker.engine.holders[sink] = None
    site.turn()
    capture = Capture(site.broker)
    assert capture.step()
    before = encoded(snapshot(site.broker))
    site.broker.engine.settle(consumer, [sink.got.pop()[1]], Disposition.ACCEPTED)
    site.publish("q", b"c")
    site.queue("later")
    site.turn()
    assert encoded(capture.records()) == before
