"""The state table, cell by cell, and the work that a branch collects."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import pytest

from escrowmq.core.branches.branch import (
    PIECE,
    RETURN,
    TRANSITIONS,
    Input,
    Keep,
    Limits,
    Publication,
    Settlement,
    State,
    TransactionBranch,
    step_each,
)
from escrowmq.core.branches.watch import Watch
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.deadlines import Deadlines
from escrowmq.core.messages.entry import Entry, Run
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.consumer import Consumer
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.queues.queue import Queue
from tests.harness.holding import each_held
from tests.unit.core.site import Site

A, R, P, T = State.ACTIVE, State.ROLLBACK_ONLY, State.PREPARED, State.TIMED_OUT
HC, HB = State.HEURISTIC_COMMITTED, State.HEURISTIC_ROLLED_BACK
C, B, F = State.COMMITTED, State.ROLLED_BACK, State.FORGOTTEN
N = None

# One row for each state. Columns: enlist, fail, prepare, commit one-phase, commit, rollback, expire, force commit,
# force rollback, forget.
TABLE: dict[State, tuple[State | None, ...]] = {
    A: (A, R, P, C, N, B, T, N, N, N),
    R: (R, R, B, B, B, B, T, N, N, N),
    P: (N, N, P, N, C, B, P, HC, HB, N),
    HC: (N, N, N, N, HC, HC, N, N, N, F),
    HB: (N, N, N, N, HB, HB, N, N, N, F),
    T: (N, N, N, N, N, B, N, N, N, N),
    C: (N, N, N, N, N, N, N, N, N, N),
    B: (N, N, N, N, N, N, N, N, N, N),
    F: (N, N, N, N, N, N, N, N, N, N),
}
ENVELOPE = Envelope("", "q")


def branch(limits: Limits | None = None, returned: list[Settlement] | None = None) -> TransactionBranch:
    """Return a branch; `returned` receives the entries that the branch returns to their queue."""

    def give_back(settlements: list[Settlement], queues: Iterable[Queue], publications: list[Publication]) -> None:
        if returned is not None:
            returned.extend(settlements)

    return TransactionBranch(7, limits or Limits(), Watch(Deadlines(), 0, lambda: None), give_back)


class Client:
    """Holds deliveries by tag."""

    def __init__(self) -> None:
        self.holds: list[tuple[int, int]] = []
        """The tags and positions that were returned."""

    def keep(self, consumer: Consumer, tags: Sequence[int], entries: Sequence[Entry]) -> None:
        self.holds += zip(tags, [entry.position for entry in entries], strict=True)


def settlement(client: Client | None = None, first: int = 1, count: int = 2) -> Settlement:
    """Return the settlement of `count` deliveries from position `first`; each tag is ten times its position."""
    entries = [Entry(position, b"body", Run(ENVELOPE, 1, 0)) for position in range(first, first + count)]
    undo = RETURN if client is None else Keep(client, [10 * entry.position for entry in entries])
    return Settlement(Site().queue().getter, entries, Disposition.ACCEPTED, undo=undo)


def publication(*contents: bytes, envelope: Envelope = ENVELOPE, mandatory: bool = False) -> Publication:
    return Publication(envelope, list(contents), (), mandatory)


def test_the_table_has_a_row_for_each_state() -> None:
    assert set(TABLE) == set(State) == set(TRANSITIONS)
    assert all(len(row) == len(Input) for row in TABLE.values())


@pytest.mark.parametrize(("state", "given"), list(itertools.product(State, Input)))
def test_every_cell(state: State, given: Input) -> None:
    one = branch()
    one.state = state
    expected = TABLE[state][list(Input).index(given)]
    if expected is not None:
        assert one.after(given) is expected
        assert one.state is state
        assert one.step(given) is expected
        assert one.state is expected
        return
    with pytest.raises(BrokerError) as refused:
        one.step(given)
    assert refused.value.condition is Condition.ILLEGAL_STATE
    assert "transaction 7 is" in refused.value.text
    assert one.state is state


class TestWork:
    def test_runs_with_the_same_envelope_and_queues_are_merged(self) -> None:
        one = branch()
        assert one.empty
        for work in (publication(b"a"), publication(b"b", b"c"), publication(b"d", mandatory=True)):
            one.enlist(work)
        one.enlist(publication(b"e", envelope=Envelope("", "other")))
        assert [work.contents for work in one.publications] == [[b"a", b"b", b"c"], [b"d"], [b"e"]]
        assert (one.operations, one.bytes) == (5, 5)
        assert not one.empty

    def test_runs_that_alternate_between_queues_are_merged_in_a_branch_with_much_work(self) -> None:
        site = Site()
        names = ("a", "b", "c")
        queues = {name: site.queue(name) for name in names}
        envelopes = {name: Envelope("", name) for name in names}
        both = Envelope("amq.fanout", "")
        one = branch()
        plain: dict[str, list[bytes]] = {name: [] for name in names}
        for i in range(300):
            to = (names[i % 3],) if i % 50 else ("a", "b")
            envelope = envelopes[to[0]] if len(to) == 1 else both
            one.enlist(Publication(envelope, [b"%d" % i], tuple(queues[name] for name in to)))
            for name in to:
                plain[name].append(b"%d" % i)
        found: dict[str, list[bytes]] = {name: [] for name in names}
        for work in one.publications:
            for queue in work.queues:
                found[queue.name] += work.contents
        assert found == plain, "the order in each queue is that of the publishes"
        assert len(one.publications) < 60
        assert one.operations == 300

    def test_mandatory_messages_are_not_merged_beyond_others(self) -> None:
        site = Site()
        queues = [site.queue(name) for name in ("a", "b")]
        one = branch()
        for i in range(100):
            envelope = ENVELOPE if i % 2 else Envelope("", "other")
            one.enlist(Publication(envelope, [b"%d" % i], (queues[i % 2],), mandatory=True))
        assert [work.contents for work in one.publications] == [[b"%d" % i] for i in range(100)]

    @pytest.mark.rule("TX-4")
    def test_settlements_that_differ_only_in_their_deliveries_are_merged_and_undone_in_pieces(self) -> None:
        site = Site()
        consumers = [Consumer(site.queue(name), None) for name in ("a", "b")]
        client, one = Client(), branch()
        for i in range(1, 3001):
            entries = [Entry(i, b"", Run(ENVELOPE, 1, 0))]
            consumer = consumers[i % 2]
            one.enlist(Settlement(consumer, entries, Disposition.ACCEPTED, Keep(client, range(i, i + 1))))
        assert len(one.settlements) < 40
        assert one.operations == sum(len(entries) for _, entries in one.held()) == 3000
        assert max(one.undo_in_pieces()) <= PIECE
        assert sorted(client.holds) == [(i, i) for i in range(1, 3001)]
        assert one.empty

    def test_a_settlement_counts_as_work(self) -> None:
        site = Site()
        queue = site.queue()
        one = branch()
        entries = [Entry(i, b"body", Run(ENVELOPE, 1, 0)) for i in (1, 2)]
        one.enlist(Settlement(queue.getter, entries, Disposition.ACCEPTED))
        assert (one.operations, one.bytes, one.empty) == (2, 0, False)

    def test_ending_releases_the_work(self) -> None:
        one = branch()
        one.watch.start(5)
        one.enlist(publication(b"a"))
        one.end()
        assert one.empty
        assert one.watch.since is None

    def test_nothing_can_be_enlisted_after_the_end(self) -> None:
        one = branch()
        one.step(Input.ROLLBACK)
        with pytest.raises(BrokerError):
            one.enlist(publication(b"a"))
        assert one.empty


class TestUndo:
    @pytest.mark.rule("TX-4")
    def test_keep_returns_deliveries_to_the_client_under_their_tags(self) -> None:
        client, returned = Client(), list[Settlement]()
        one = branch(returned=returned)
        one.enlist(settlement(client))
        one.enlist(settlement(client, 5, 1))
        one.undo()
        assert client.holds == [(10, 1), (20, 2), (50, 5)]
        assert returned == []
        assert one.empty

    @pytest.mark.rule("DTX-14")
    def test_return_requeues_deliveries_at_their_positions(self) -> None:
        returned = list[Settlement]()
        one = branch(returned=returned)
        works = [settlement(), settlement(first=5)]
        for work in works:
            one.enlist(work)
        one.undo()
        assert returned == works
        assert one.empty

    def test_each_settlement_is_undone_by_its_own_rule(self) -> None:
        client, returned = Client(), list[Settlement]()
        one = branch(returned=returned)
        one.enlist(settlement(client))
        one.enlist(work := settlement(first=5))
        one.undo()
        assert (client.holds, returned) == ([(10, 1), (20, 2)], [work])

    def test_a_commit_undoes_nothing(self) -> None:
        client = Client()
        one = branch()
        one.enlist(settlement(client))
        one.end()
        assert client.holds == []

    @pytest.mark.rule("TX-13")
    def test_a_settlement_beyond_the_limits_is_undone_immediately(self) -> None:
        client, returned = Client(), list[Settlement]()
        one = branch(Limits(operations=1), returned)
        for work in (settlement(client), settlement(first=5)):
            with pytest.raises(BrokerError, match="more than 1 operations"):
                one.enlist(work)
        assert client.holds == [(10, 1), (20, 2)]
        assert [entry.position for work in returned for entry in work.entries] == [5, 6]
        assert one.empty

    def test_a_settlement_after_the_end_is_undone_immediately(self) -> None:
        client = Client()
        one = branch()
        one.step(Input.ROLLBACK)
        with pytest.raises(BrokerError) as refused:
            one.enlist(settlement(client))
        assert refused.value.condition is Condition.ILLEGAL_STATE
        assert client.holds == [(10, 1), (20, 2)]

    def test_a_branch_holds_its_settlements_until_its_outcome(self) -> None:
        one = branch()
        for first, count in ((1, 2), (3, 3)):
            one.enlist(settlement(first=first, count=count))
        assert [entry.position for _, entry in each_held(one)] == [1, 2, 3, 4, 5]
        for start in range(6):
            for most in range(1, 6):
                found = [entry.position for _, entry in one.held_part(start, most)]
                assert found == [1, 2, 3, 4, 5][start : start + most]
        one.undo()
        assert list(each_held(one)) == one.held_part(0, 9) == []


@pytest.mark.rule("TX-13")
class TestBounds:
    def test_operations_are_limited(self) -> None:
        one = branch(Limits(operations=3))
        one.enlist(publication(b"a", b"b", b"c"))
        with pytest.raises(BrokerError) as refused:
            one.enlist(publication(b"d"))
        assert refused.value.condition is Condition.LIMIT_EXCEEDED
        assert refused.value.text == "transaction has more than 3 operations, the configured limit"

    def test_bytes_are_limited(self) -> None:
        one = branch(Limits(bytes=5))
        one.enlist(publication(b"12345"))
        with pytest.raises(BrokerError, match="more than 5 bytes"):
            one.enlist(publication(b"6"))

    def test_headers_count_as_bytes(self) -> None:
        one = branch(Limits(bytes=12))
        one.enlist(publication(b"1", envelope=(envelope := Envelope("", "q", b"header"))))
        one.enlist(publication(b"2", envelope=envelope))
        assert one.bytes == 8, "one header serves the whole run"
        with pytest.raises(BrokerError, match="more than 12 bytes"):
            one.enlist(publication(b"3", envelope=Envelope("", "q", b"header")))

    def test_settlements_count_as_operations(self) -> None:
        site = Site()
        queue = site.queue()
        one = branch(Limits(operations=1))
        entries = [Entry(i, b"body", Run(ENVELOPE, 1, 0)) for i in (1, 2)]
        with pytest.raises(BrokerError, match="more than 1 operations"):
            one.enlist(Settlement(queue.getter, entries, Disposition.ACCEPTED))

    def test_without_limits_everything_is_accepted(self) -> None:
        one = branch()
        one.enlist(publication(*[b"x" * 100] * 10_000))
        assert one.bytes == 1_000_000


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("given", Input)
def test_many_branches_take_the_same_transition_as_one(state: State, given: Input) -> None:
    after = TRANSITIONS[state].get(given)
    branches = [branch() for _ in range(2)]
    for each in branches:
        each.state = state
    if after is None:
        with pytest.raises(KeyError):
            step_each(branches, state, given)
    else:
        step_each(branches, state, given)
    assert {each.state for each in branches} == {state if after is None else after}
