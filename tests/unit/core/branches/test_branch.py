"""The state table, cell by cell, and what a branch gathers."""

from __future__ import annotations

import itertools

import pytest

from escrowmq.core.branches.branch import TRANSITIONS, Input, Limits, Publication, Settlement, State, TransactionBranch
from escrowmq.core.branches.watch import Watch
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.deadlines import Deadlines
from escrowmq.core.messages.entry import Entry, Run
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.outcome import Outcome
from tests.unit.core.site import Site

A, R, P, T = State.ACTIVE, State.ROLLBACK_ONLY, State.PREPARED, State.TIMED_OUT
HC, HB = State.HEURISTIC_COMMITTED, State.HEURISTIC_ROLLED_BACK
C, B, F = State.COMMITTED, State.ROLLED_BACK, State.FORGOTTEN
N = None

# One row for each state, one column for each input: enlist, fail, prepare, commit one-phase, commit, rollback, expire,
# force commit, force rollback, forget.
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


def branch(limits: Limits | None = None) -> TransactionBranch:
    return TransactionBranch(7, limits or Limits(), Watch(Deadlines(), 0, lambda: None))


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
        assert one.step(given) is expected
        assert one.state is expected
        return
    with pytest.raises(BrokerError) as refused:
        one.step(given)
    assert refused.value.condition is Condition.ILLEGAL_STATE
    assert "transaction 7 is" in refused.value.text
    assert one.state is state


class TestWork:
    def test_runs_of_one_form_become_one(self) -> None:
        one = branch()
        assert one.empty
        for work in (publication(b"a"), publication(b"b", b"c"), publication(b"d", mandatory=True)):
            one.enlist(work)
        one.enlist(publication(b"e", envelope=Envelope("", "other")))
        assert [work.contents for work in one.publications] == [[b"a", b"b", b"c"], [b"d"], [b"e"]]
        assert (one.operations, one.bytes) == (5, 5)
        assert not one.empty

    def test_a_settlement_is_work(self) -> None:
        site = Site()
        queue = site.queue()
        one = branch()
        entries = [Entry(i, b"body", Run(ENVELOPE, 1, 0)) for i in (1, 2)]
        one.enlist(Settlement(queue.getter, entries, Outcome.ACCEPTED))
        assert (one.operations, one.bytes, one.empty) == (2, 0, False)

    def test_ending_lets_go(self) -> None:
        one = branch()
        one.watch.start(5)
        one.enlist(publication(b"a"))
        one.end()
        assert one.empty
        assert one.watch.since is None

    def test_nothing_can_be_enlisted_in_one_that_has_ended(self) -> None:
        one = branch()
        one.step(Input.ROLLBACK)
        with pytest.raises(BrokerError):
            one.enlist(publication(b"a"))
        assert one.empty


@pytest.mark.rule("TX-13")
class TestBounds:
    def test_operations(self) -> None:
        one = branch(Limits(operations=3))
        one.enlist(publication(b"a", b"b", b"c"))
        with pytest.raises(BrokerError) as refused:
            one.enlist(publication(b"d"))
        assert refused.value.condition is Condition.LIMIT_EXCEEDED
        assert refused.value.text == "transaction has more than 3 operations, the configured limit"

    def test_bytes(self) -> None:
        one = branch(Limits(bytes=5))
        one.enlist(publication(b"12345"))
        with pytest.raises(BrokerError, match="more than 5 bytes"):
            one.enlist(publication(b"6"))

    def test_headers_are_bytes_too(self) -> None:
        one = branch(Limits(bytes=12))
        one.enlist(publication(b"1", envelope=(envelope := Envelope("", "q", b"header"))))
        one.enlist(publication(b"2", envelope=envelope))
        assert one.bytes == 8, "one header serves the whole run"
        with pytest.raises(BrokerError, match="more than 12 bytes"):
            one.enlist(publication(b"3", envelope=Envelope("", "q", b"header")))

    def test_settlements_are_operations(self) -> None:
        site = Site()
        queue = site.queue()
        one = branch(Limits(operations=1))
        entries = [Entry(i, b"body", Run(ENVELOPE, 1, 0)) for i in (1, 2)]
        with pytest.raises(BrokerError, match="more than 1 operations"):
            one.enlist(Settlement(queue.getter, entries, Outcome.ACCEPTED))

    def test_without_bounds(self) -> None:
        one = branch()
        one.enlist(publication(*[b"x" * 100] * 10_000))
        assert one.bytes == 1_000_000
