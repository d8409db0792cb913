"""Branches and their coordination: the table of states by calls, and the effects on messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from escrowmq.core.branches.branch import Limits, Settlement, State
from escrowmq.core.branches.xa import XaStatus
from escrowmq.core.branches.xid import Xid
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.queues.outcome import Disposition, Outcome
from escrowmq.core.records.blocks import decode_block
from escrowmq.core.records.branches import decode_decide, decode_prepare
from escrowmq.core.records.commits import decode_commit
from escrowmq.core.records.kinds import Kind
from tests.harness.holding import each_held
from tests.unit.core.site import Sink
from tests.unit.core.xa_site import OK, Channel, X, XaSite, Y

RB, TIMEOUT, RDONLY = XaStatus.RB_ROLLBACK, XaStatus.RB_TIMEOUT, XaStatus.RDONLY
COM, ROLLED = XaStatus.HEUR_COM, XaStatus.HEUR_RB
UNKNOWN, INVALID = Condition.NOT_FOUND, Condition.COMMAND_INVALID
STATE, KNOWN = Condition.ILLEGAL_STATE, Condition.NOT_ALLOWED
Answer = XaStatus | Condition | None
Call = Callable[[XaSite, Channel], Any]

STATES = (
    *("unknown", "active", "suspended", "ended", "rollback only", "prepared"),
    *("forced commit", "forced rollback", "timed out", "timed out, associated"),
)


def start(**flags: Any) -> Call:
    return lambda site, worker: site.demarcations.start(worker, X, limits=Limits(), **flags)[0].status


def end(**flags: bool) -> Call:
    return lambda site, worker: site.demarcations.end(worker, X, **flags).status


def forced(*, commit: bool) -> Call:
    return lambda site, _: site.coordinator.force(X, commit=commit).status


CALLS: dict[str, Call] = {
    "start": start(),
    "join": start(join=True),
    "resume": start(resume=True),
    "end": end(),
    "fail": end(fail=True),
    "suspend": end(suspend=True),
    "prepare": lambda site, _: site.coordinator.prepare(X).status,
    "commit one-phase": lambda site, _: site.coordinator.commit(X, one_phase=True).status,
    "commit": lambda site, _: site.coordinator.commit(X, one_phase=False).status,
    "rollback": lambda site, _: site.coordinator.rollback(X).status,
    "forget": lambda site, _: site.coordinator.forget(X) and None,
    "set-timeout": lambda site, _: site.branches.set_timeout(X, 5),
    "get-timeout": lambda site, _: site.branches.get_timeout(X) and None,
    "force commit": forced(commit=True),
    "force rollback": forced(commit=False),
}

# The answer to the worker that made the branch, in the order of STATES. `None`: a call without a status succeeds.
TABLE: dict[str, tuple[Answer, ...]] = {
    "start": (OK, KNOWN, KNOWN, KNOWN, KNOWN, KNOWN, KNOWN, KNOWN, KNOWN, KNOWN),
    "join": (UNKNOWN, INVALID, OK, OK, OK, INVALID, INVALID, INVALID, TIMEOUT, TIMEOUT),
    "resume": (INVALID, INVALID, OK, INVALID, INVALID, INVALID, INVALID, INVALID, INVALID, INVALID),
    "end": (UNKNOWN, OK, STATE, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, TIMEOUT),
    "fail": (UNKNOWN, RB, STATE, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, TIMEOUT),
    "suspend": (UNKNOWN, OK, STATE, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, TIMEOUT),
    "prepare": (UNKNOWN, STATE, STATE, OK, RB, OK, STATE, STATE, TIMEOUT, TIMEOUT),
    "commit one-phase": (UNKNOWN, STATE, STATE, OK, RB, STATE, STATE, STATE, TIMEOUT, TIMEOUT),
    "commit": (UNKNOWN, STATE, STATE, STATE, RB, OK, COM, ROLLED, TIMEOUT, TIMEOUT),
    "rollback": (UNKNOWN, STATE, STATE, OK, OK, OK, COM, ROLLED, TIMEOUT, TIMEOUT),
    "forget": (UNKNOWN, STATE, STATE, STATE, STATE, STATE, None, None, STATE, STATE),
    "set-timeout": (UNKNOWN, None, None, None, None, None, None, None, STATE, STATE),
    "get-timeout": (UNKNOWN, None, None, None, None, None, None, None, None, None),
    "force commit": (UNKNOWN, STATE, STATE, STATE, STATE, COM, STATE, STATE, STATE, STATE),
    "force rollback": (UNKNOWN, STATE, STATE, STATE, STATE, ROLLED, STATE, STATE, STATE, STATE),
}
# The answer to a worker that is not associated with the branch, where it differs.
OTHERS: dict[str, tuple[Answer, ...]] = {
    "join": (UNKNOWN, OK, OK, OK, OK, INVALID, INVALID, INVALID, TIMEOUT, TIMEOUT),
    "resume": (INVALID, *[INVALID] * 9),
    "end": (UNKNOWN, *[UNKNOWN] * 9),
    "fail": (UNKNOWN, *[UNKNOWN] * 9),
    "suspend": (UNKNOWN, *[UNKNOWN] * 9),
}


@pytest.fixture
def site() -> XaSite:
    return XaSite()


def ask(site: XaSite, call: str, worker: Channel) -> Answer:
    try:
        answer: Answer = CALLS[call](site, worker)
    except BrokerError as refused:
        return refused.condition
    return answer


def cells(table: dict[str, tuple[Answer, ...]]) -> list[tuple[str, str, Answer]]:
    assert all(len(row) == len(STATES) for row in table.values())
    return [(call, state, answer) for call, row in table.items() for state, answer in zip(STATES, row, strict=True)]


@pytest.mark.rule("DTX-2", "DTX-3", "DTX-4", "DTX-5", "DTX-8", "DTX-9", "DTX-10", "DTX-13")
class TestTable:
    @pytest.mark.parametrize(("call", "state", "expected"), cells(TABLE))
    def test_the_answer_to_the_worker_that_made_the_branch(
        self, site: XaSite, call: str, state: str, expected: Answer
    ) -> None:
        if state != "unknown":
            site.in_state(state)
        before = site.branches.views()
        assert ask(site, call, site.worker) == expected
        if isinstance(expected, Condition):
            assert site.branches.views() == before

    @pytest.mark.parametrize(("call", "state", "expected"), cells(OTHERS))
    def test_the_answer_to_another_worker(self, site: XaSite, call: str, state: str, expected: Answer) -> None:
        if state != "unknown":
            site.in_state(state)
        assert ask(site, call, Channel()) == expected

    @pytest.mark.parametrize("flags", [{"join": True, "resume": True}])
    def test_contradictory_flags_of_start_are_refused(self, site: XaSite, flags: dict[str, Any]) -> None:
        with pytest.raises(BrokerError) as refused:
            site.demarcations.start(site.worker, X, limits=Limits(), **flags)
        assert refused.value.condition is INVALID

    def test_contradictory_flags_of_end_are_refused(self, site: XaSite) -> None:
        site.start()
        with pytest.raises(BrokerError) as refused:
            site.demarcations.end(site.worker, X, fail=True, suspend=True)
        assert refused.value.condition is INVALID
        assert site.end() is OK

    @pytest.mark.parametrize("other", [Xid(2, *X[1:]), Xid(1, b"other", X.bqual), Y])
    def test_branches_are_distinguished_by_all_three_parts_of_the_xid(self, site: XaSite, other: Xid) -> None:
        site.prepared()
        assert ask_of(site, other) is UNKNOWN
        site.start(other)
        assert site.branches.recover() == [X]


def ask_of(site: XaSite, xid: Xid) -> Condition:
    with pytest.raises(BrokerError) as refused:
        site.coordinator.commit(xid, one_phase=False)
    return refused.value.condition


class TestPrepare:
    @pytest.mark.rule("DTX-8")
    def test_a_branch_without_work_is_read_only(self, site: XaSite) -> None:
        site.start()
        site.end()
        end = site.journal.end_lsn
        assert site.coordinator.prepare(X) == (RDONLY, 0, (), "")
        assert site.journal.end_lsn == end
        assert site.branches.views() == []

    @pytest.mark.rule("DTX-8", "DTX-9")
    def test_the_prepare_record_has_all_content_and_the_commit_refers_to_it(self, site: XaSite) -> None:
        branch = site.prepared(publish=(b"a", b"b"))
        assert site.waiting() == ([b"old 1"], [])
        (payload,) = site.records(Kind.PREPARE)
        found = decode_prepare(payload, 1000)
        assert (found.number, found.state, found.xid) == (branch.number, State.PREPARED, X.encode())
        ((queues, mandatory, block, length),) = found.runs
        assert (queues, mandatory, length) == ((site.vhost.queue("to").ident,), False, 2)
        assert decode_block(payload, block - 1000).contents == [b"a", b"b"]
        ((queue, outcome, ranges, requeue),) = found.settlements
        assert (queue, outcome, ranges, requeue) == (site.q.ident, Outcome.ACCEPTED, [(1, 1)], False)
        result = site.coordinator.commit(X, one_phase=False)
        assert result == (OK, site.journal.end_lsn, (), "")
        site.turn()
        assert site.waiting() == ([b"old 1"], [b"a", b"b"])
        (commit,) = site.records(Kind.COMMIT)
        number, operations = decode_commit(commit)
        assert number == branch.number
        assert [kind for kind, _, _ in operations] == [Kind.PLACED, Kind.SETTLE]

    @pytest.mark.rule("DTX-8")
    def test_a_repeated_prepare_waits_for_the_same_sync(self, site: XaSite) -> None:
        site.worked()
        first = site.coordinator.prepare(X)
        site.publish("q", b"more")
        assert site.coordinator.prepare(X) == first

    @pytest.mark.rule("TX-3")
    def test_prepare_restores_credit_and_keeps_counting_the_messages(self, site: XaSite) -> None:
        site.publish("q", b"1", b"2", b"3")
        consumer, sink = site.consume(site.q, credit=1)
        site.turn()
        branch = site.start()
        site.broker.transactions.enlist(branch, Settlement(consumer, [sink.got[0][1]], Disposition.ACCEPTED))
        site.end()
        site.turn()
        assert sink.contents == [b"1"]
        site.coordinator.prepare(X)
        site.turn()
        assert sink.contents == [b"1", b"2"]
        assert site.q.unsettled == 2
        site.coordinator.commit(X, one_phase=False)
        site.turn()
        assert site.q.unsettled == 1

    def test_prepare_rolls_back_if_a_queue_is_full(self, site: XaSite) -> None:
        site.queue("small", {"x-max-length": 1, "x-overflow": "reject-publish"})
        site.publish("small", b"x")
        branch = site.worked(publish=())
        branch.state = State.ACTIVE
        branch.enlist(site.publication("small", b"y"))
        result = site.coordinator.prepare(X)
        assert result.status is RB
        assert "full" in result.reason
        assert site.contents("q") == [b"old 0", b"old 1"]
        assert site.branches.views() == []

    def test_room_promised_to_a_prepared_branch_is_not_used_by_others(self, site: XaSite) -> None:
        small = site.queue("small", {"x-max-length": 2, "x-overflow": "reject-publish"})
        branch = site.start()
        site.broker.transactions.enlist(branch, site.publication("small", b"mine"))
        site.end()
        site.coordinator.prepare(X)
        site.turn()
        assert site.publish("small", b"a", b"b").refused == (1,)
        site.turn()
        again = site.restart()
        assert again.publish("small", b"c").refused == (0,)
        assert site.coordinator.commit(X, one_phase=False).status is OK
        site.turn()
        assert site.contents("small") == [b"a", b"mine"]
        assert not site.broker.engine.promised
        assert site.broker.engine.get(small, auto_settle=True) is not None
        assert site.publish("small", b"d").refused == ()


@pytest.mark.rule("DTX-14")
class TestRollback:
    def test_an_active_branch_is_rolled_back(self, site: XaSite) -> None:
        site.worked()
        assert site.coordinator.rollback(X) == (OK, 0, (), "")
        assert site.waiting() == ([b"old 0", b"old 1"], [])
        assert site.ready(site.q)[0] == (1, b"old 0", True)

    def test_a_prepared_branch_requeues_once_its_rollback_is_on_disk(self, site: XaSite) -> None:
        site.prepared()
        result = site.coordinator.rollback(X)
        assert (result.status, result.lsn) == (OK, site.journal.end_lsn)
        site.turn(sync=False)
        assert site.waiting() == ([b"old 1"], [])
        assert site.q.unsettled == 1
        site.turn()
        assert site.ready(site.q) == [(1, b"old 0", True), (2, b"old 1", False)]
        assert site.q.unsettled == 0
        assert site.live() == 2
        again = site.restart()
        assert again.ready(again.q) == [(1, b"old 0", True), (2, b"old 1", False)]
        assert again.branches.recover() == []

    def test_a_purge_keeps_locked_messages(self, site: XaSite) -> None:
        site.prepared()
        assert site.broker.directory.purge(site.q) == 1
        site.coordinator.rollback(X)
        site.turn()
        assert site.contents("q") == [b"old 0"]

    def test_rollback_tolerates_a_deleted_queue(self, site: XaSite) -> None:
        site.prepared()
        site.broker.directory.delete_queue(site.q)
        site.coordinator.rollback(X)
        site.turn()
        assert site.live() == 0
        assert not site.broker.coordinator.returning

    def test_locked_messages_neither_expire_nor_are_dropped(self, site: XaSite) -> None:
        site.broker.directory.delete_queue(site.q)
        q = site.queue("q", {"x-message-ttl": 1000, "x-max-length": 1})
        site.publish("q", b"1")
        site.prepared(publish=())
        site.after(5000)
        site.publish("q", b"2")
        site.turn()
        assert site.ready(q) == [(2, b"2", False)]
        site.coordinator.rollback(X)
        site.sync()
        assert site.ready(q) == [(1, b"1", True), (2, b"2", False)]
        site.turn()  # both limits apply to the message again
        assert site.contents("q") == [b"2"]

    def test_settlements_on_a_transient_queue_are_undone(self, site: XaSite) -> None:
        site.broker.directory.delete_queue(site.q)
        site.queue("q", durable=False)
        site.prepared()
        assert site.contents("q") == [b"old 1"]
        site.coordinator.rollback(X)
        site.turn()
        assert site.contents("q") == [b"old 0", b"old 1"]


@pytest.mark.rule("DTX-10", "DTX-11")
class TestHeuristic:
    @pytest.mark.parametrize("commit", [True, False])
    def test_the_manager_gets_the_heuristic_outcome_until_it_forgets(self, site: XaSite, commit: bool) -> None:
        site.prepared()
        told = COM if commit else ROLLED
        expected = ([b"old 1"], [b"new"]) if commit else ([b"old 0", b"old 1"], [])
        assert site.coordinator.force(X, commit=commit)[:2] == (told, site.journal.end_lsn)
        site.turn()
        for now in (site, site.restart()):
            assert now.waiting() == expected
            assert now.branches.recover() == [X]
            assert now.coordinator.commit(X, one_phase=False).status is told
            assert now.coordinator.rollback(X).status is told
            assert now.waiting() == expected
        assert site.coordinator.forget(X) == site.journal.end_lsn
        site.turn()
        assert site.branches.recover() == []
        assert site.restart().branches.recover() == []
        assert site.restart().waiting() == expected

    def test_a_heuristic_outcome_survives_a_snapshot(self, site: XaSite) -> None:
        site.prepared()
        site.coordinator.force(X, commit=True)
        site.turn()
        site.snapshot()
        again = site.restart()
        assert again.coordinator.rollback(X).status is COM
        assert again.branches.views()[0].state == "heuristic_committed"
        again.coordinator.forget(X)
        again.turn()
        assert again.restart().branches.recover() == []


@pytest.mark.rule("PIPE-2")
class TestDecide:
    def decide(self, site: XaSite, *winners: bytes, epoch: int = 1, application: str = "app") -> XaStatus:
        result = site.coordinator.decide(b"global", 1, winners, application=application, epoch=epoch)
        assert result.lsn <= site.journal.end_lsn
        site.turn()
        return result.status

    def test_winners_and_losers_in_one_record(self, site: XaSite) -> None:
        site.publish("q", b"1", b"2", b"3", b"4")
        one = site.prepared(X, publish=(b"x",))
        two = site.prepared(Y, publish=(b"y",))
        lost = site.prepared(Xid(1, b"global", b"lost"), publish=(b"no",))
        site.worked(Xid(1, b"global", b"active"), publish=(b"neither",))
        assert self.decide(site, b"two", b"one", b"two") is OK
        assert site.contents("to") == [b"y", b"x"]
        assert site.contents("q") == [b"3", b"4"]
        (payload,) = site.records(Kind.DECIDE)
        found = decode_decide(payload)
        assert (found.application, found.epoch, found.rolled_back) == ("app", 1, [lost.number])
        assert [number for number, _ in found.committed] == [two.number, one.number]
        assert site.branches.views() == []
        again = site.restart()
        assert (again.contents("q"), again.contents("to")) == ([b"3", b"4"], [b"y", b"x"])
        assert again.coordinator.progress.epoch("app") == 1
        assert again.branches.recover() == []

    def test_other_transactions_are_left_alone(self, site: XaSite) -> None:
        others = [Xid(2, b"global", b"one"), Xid(1, b"another", b"one")]
        for other in others:
            site.prepared(other, settle=0)
        site.prepared(X, settle=0)
        assert self.decide(site, b"one") is OK
        assert site.branches.recover() == others

    def test_an_epoch_is_decided_once(self, site: XaSite) -> None:
        site.prepared(settle=0)
        self.decide(site, b"one", epoch=5)
        site.prepared(Y)
        again = site.restart()
        assert again.coordinator.decide(b"global", 1, [b"two"], application="app", epoch=5).status is OK
        again.turn()
        assert again.waiting() == ([b"old 0", b"old 1"], [b"new"])
        assert again.branches.recover() == []
        assert again.coordinator.progress.epoch("app") == 5
        end = again.journal.end_lsn
        assert again.coordinator.decide(b"global", 1, [b"two"], application="app", epoch=4).status is OK
        assert again.journal.end_lsn == end
        assert again.restart().coordinator.progress.epoch("app") == 5

    def test_epochs_of_different_applications_are_independent(self, site: XaSite) -> None:
        self.decide(site, epoch=3, application="a")
        self.decide(site, epoch=1, application="b")
        site.snapshot()
        again = site.restart()
        assert [again.coordinator.progress.epoch(name) for name in "abc"] == [3, 1, None]

    @pytest.mark.parametrize(("winner", "condition"), [(b"nobody", UNKNOWN), (b"two", STATE)])
    def test_nothing_is_decided_if_a_branch_cannot_be_committed(
        self, site: XaSite, winner: bytes, condition: Condition
    ) -> None:
        site.prepared(settle=0)
        site.worked(Y, settle=0)
        with pytest.raises(BrokerError) as refused:
            self.decide(site, b"one", winner)
        assert refused.value.condition is condition
        assert site.branches.recover() == [X]
        assert site.coordinator.progress.epoch("app") is None
        assert site.contents("to") == []

    def test_the_worker_of_a_rolled_back_branch_is_told(self, site: XaSite) -> None:
        site.prepared(settle=0)
        site.start(Y)
        self.decide(site, b"one")
        assert site.end(Y) is RB
        assert site.coordinator.prepare(Y).status is RB

    def test_an_operators_decision_stays(self, site: XaSite) -> None:
        site.prepared(settle=0)
        site.prepared(Y, settle=0)
        site.coordinator.force(Y, commit=False)
        self.decide(site, b"one")
        assert site.branches.recover() == [Y]


def test_a_branch_holds_the_messages_settled_in_it(site: XaSite) -> None:
    branch = site.worked(settle=3)
    assert branch in site.broker.engine.holders
    assert [entry.content for _, entry in each_held(branch)] == [b"old 0", b"old 1", b"old 2"]
    site.coordinator.prepare(X)
    site.coordinator.rollback(X)
    assert branch in site.broker.engine.holders
    site.turn()
    assert branch not in site.broker.engine.holders


def test_a_consumer_may_be_cancelled_before_its_branch_is_decided(site: XaSite) -> None:
    site.publish("q", b"1")
    sink = Sink()
    consumer, _ = site.consume(site.q, sink, credit=1)
    site.turn()
    branch = site.start()
    site.broker.transactions.enlist(branch, Settlement(consumer, [sink.got[0][1]], Disposition.ACCEPTED))
    site.broker.engine.unsubscribe(consumer)
    site.end()
    site.coordinator.rollback(X)
    assert site.ready(site.q) == [(1, b"1", True)]
    assert site.q.unsettled == 0
