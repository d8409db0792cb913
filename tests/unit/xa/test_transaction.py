"""Global transactions over two participants on files: all or nothing, and errors that name each one's state."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from escrowmq.xa import (
    BranchState,
    GlobalTransaction,
    HeuristicError,
    InDoubt,
    RolledBack,
    TimedOut,
    TransactionManager,
    UsageError,
)
from escrowmq.xa.transaction import Phase
from tests.broker import wait_until
from tests.xa.vault import Connection, Vault


class Faults:
    """The faults to inject, by the name of the call."""

    def __init__(self) -> None:
        self.at: dict[str, Callable[[], object]] = {}
        self.seen: list[str] = []

    def __call__(self, name: str) -> None:
        self.seen.append(name)
        action = self.at.get(name)
        if action is not None:
            action()

    def lose(self, name: str) -> None:
        def lose() -> None:
            raise ConnectionError(f"lost at {name}")

        self.at[name] = lose


class Site:
    def __init__(self, folder: Path) -> None:
        self.faults = Faults()
        self.left = Vault(folder / "left", self.faults)
        self.right = Vault(folder / "right", self.faults)
        self.log = folder / "decisions.db"

    def manager(self, call_timeout: float | None = 60.0) -> TransactionManager:
        participants = {"left": self.left.connect, "right": self.right.connect}
        return TransactionManager("site", self.log, participants, call_timeout=call_timeout)

    def agree(self) -> list[str]:
        assert self.left.in_doubt() == self.right.in_doubt() == []
        assert self.left.contents() == self.right.contents()
        return self.left.contents()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.fixture
def manager(site: Site) -> Iterator[TransactionManager]:
    with site.manager() as manager:
        yield manager


def work(tx: GlobalTransaction, text: str = "coffee") -> None:
    tx["left"].work(text)
    tx["right"].work(text)


def work_slowly(tx: GlobalTransaction, seconds: float) -> None:
    overdue = time.monotonic() + seconds
    work(tx)
    wait_until(lambda: time.monotonic() > overdue)


def test_both_participants_commit_or_none(site: Site, manager: TransactionManager) -> None:
    with manager.transaction("left", "right") as tx:
        work(tx)
    assert site.agree() == ["coffee"]
    assert tx.phase is Phase.COMMITTED
    assert tx.states == {"left": BranchState.COMMITTED, "right": BranchState.COMMITTED}
    with pytest.raises(KeyError), manager.transaction("left", "right") as tx:  # noqa: PT012
        work(tx, "tea")
        tx["middle"]
    assert site.agree() == ["coffee"]
    assert tx.phase is Phase.ROLLED_BACK
    assert manager.unfinished() == []


def test_connections_are_reused_only_after_a_commit(site: Site, manager: TransactionManager) -> None:
    with manager.transaction("left", "right") as tx:
        work(tx, "one")
        first = tx["left"]
    with manager.transaction("left", "right") as tx:
        assert tx["left"] is first
        work(tx, "two")
        tx.rollback()
    assert first.closed
    assert site.left.open == site.right.open == 1 - 1
    assert site.agree() == ["one"]


def test_a_passed_connection_stays_open(site: Site, manager: TransactionManager) -> None:
    own = site.left.connect()
    with manager.transaction("right", connections={"left": own}) as tx:
        work(tx)
    assert not own.closed
    with manager.transaction() as tx:
        assert tx.enlist("left", own) is own
        own.work("alone")
    assert site.left.contents() == ["alone", "coffee"]
    own.close()


def test_a_single_participant_commits_in_one_phase(site: Site, manager: TransactionManager) -> None:
    with manager.transaction("left") as tx:
        tx["left"].work("coffee")
    assert site.left.contents() == ["coffee"]
    assert "left prepare" not in site.faults.seen


def test_an_empty_transaction_commits(manager: TransactionManager) -> None:
    with manager.transaction() as tx:
        pass
    assert tx.phase is Phase.COMMITTED


def test_a_read_only_vote_needs_no_second_phase(site: Site, manager: TransactionManager) -> None:
    with manager.transaction("left", "right") as tx:
        tx["left"].work("coffee")
    assert tx.states == {"left": BranchState.COMMITTED, "right": BranchState.READ_ONLY}
    assert "right commit" not in site.faults.seen
    with manager.transaction("left", "right"):
        pass
    assert manager.unfinished() == []


def test_a_refused_vote_rolls_back_all_participants(site: Site, manager: TransactionManager) -> None:
    def refuse() -> None:
        raise ValueError("no money left")

    site.faults.at["right prepare"] = refuse
    with (
        pytest.raises(RolledBack, match="right did not prepare: ValueError: no money left") as caught,
        manager.transaction("left", "right") as tx,
    ):
        work(tx)
    assert caught.value.id == tx.id
    assert caught.value.states == {"left": BranchState.ROLLED_BACK, "right": BranchState.ROLLED_BACK}
    assert isinstance(caught.value.__cause__, ValueError)
    assert site.agree() == []


@pytest.mark.parametrize("when", ["right prepare", "right prepare done"])
def test_a_participant_lost_during_its_vote_rolls_back(site: Site, manager: TransactionManager, when: str) -> None:
    site.faults.lose(when)
    with (
        pytest.raises(RolledBack, match=r"left: rolled back, right: no answer") as caught,
        manager.transaction("left", "right") as tx,
    ):
        work(tx)
    assert caught.value.states["right"] is BranchState.UNANSWERED
    wait_until(lambda: not site.right.in_doubt(), what="the manager's own recovery")
    assert site.agree() == []


@pytest.mark.parametrize("when", ["right commit", "right commit done"])
def test_a_participant_lost_during_its_commit_is_completed_later(
    site: Site, manager: TransactionManager, when: str
) -> None:
    site.faults.lose(when)
    site.faults.lose("right connect")
    with pytest.raises(ConnectionError):
        site.right.connect()
    site.faults.at.pop("right connect")
    with manager.transaction("left", "right") as tx:
        work(tx)
        site.faults.lose("right recover")
    assert tx.phase is Phase.COMMITTED
    assert tx.unfinished == ["right"]
    assert [decision.gtrid for decision in manager.unfinished()] == [tx.id]
    site.faults.at.clear()
    wait_until(lambda: not manager.unfinished(), what="the manager's own recovery")
    assert site.agree() == ["coffee"]


def test_a_participant_that_hangs_does_not_delay_the_others(site: Site) -> None:
    hang = threading.Event()
    site.faults.at["right prepare"] = hang.wait
    with site.manager(call_timeout=2) as manager:
        with (
            pytest.raises(RolledBack, match=r"right did not prepare: CallTimeout: no answer within 2 s"),
            manager.transaction("left", "right") as tx,
        ):
            work(tx)
        assert tx.states["left"] is BranchState.ROLLED_BACK
        hang.set()
        wait_until(lambda: "right prepare done" in site.faults.seen, what="the late vote")
        manager.recover()
    assert site.agree() == []


def test_a_transaction_has_a_timeout(site: Site, manager: TransactionManager) -> None:
    with (
        pytest.raises(TimedOut, match=r"not finished within 0.05 s") as caught,
        manager.transaction("left", "right", timeout=0.05) as tx,
    ):
        work_slowly(tx, 0.06)
    assert isinstance(caught.value, TimeoutError)
    assert site.agree() == []


@pytest.mark.rule("DTX-11")
@pytest.mark.parametrize(
    ("left", "right", "outcome"),
    [
        ("rolled back", "rolled back", "rollback"),
        ("rolled back", None, "mixed"),
        ("mixed", None, "mixed"),
        ("hazard", None, "hazard"),
        ("vanished", None, "hazard"),
        ("committed", "rolled back", "mixed"),
        ("committed", None, None),
        ("committed", "committed", None),
    ],
)
def test_a_heuristic_outcome_is_reported(
    site: Site, manager: TransactionManager, left: str, right: str | None, outcome: str | None
) -> None:
    tx = manager.transaction("left", "right")
    work(tx)
    tx.prepare()
    site.left.by_hand("left.1", left)
    if right is not None:
        site.right.by_hand("right.2", right)
    if outcome is None:
        tx.decide()
        assert site.agree() == ["coffee"]
        assert manager.unfinished() == []
        return
    with pytest.raises(HeuristicError, match=f"heuristic {outcome}, but commit was decided") as caught:
        tx.decide()
    assert caught.value.outcome == outcome
    assert "by hand" in caught.value.states["right" if right else "left"].value
    manager.recover()
    assert [decision.gtrid for decision in manager.unfinished()] == [tx.id], "the outcome is kept until it is forgotten"
    if left != "vanished":
        manager.forget(tx.id)
        assert manager.unfinished() == []
        assert manager.recover().heuristic == {}


@pytest.mark.rule("DTX-11")
def test_a_manual_commit_against_a_rollback_is_reported(site: Site, manager: TransactionManager) -> None:
    tx = manager.transaction("left", "right")
    work(tx)
    tx.prepare()
    site.left.by_hand("left.1", "committed")
    with pytest.raises(HeuristicError, match="heuristic mixed, but rollback was decided") as caught:
        tx.rollback()
    assert caught.value.states == {"left": BranchState.HEURISTIC_COMMIT, "right": BranchState.ROLLED_BACK}
    (kept,) = manager.unfinished()
    assert kept.outcome == "rollback"


def test_a_log_that_cannot_be_written_leaves_everything_in_doubt_until_recovery(
    site: Site, manager: TransactionManager
) -> None:
    tx = manager.transaction("left", "right")
    work(tx)
    tx.prepare()
    assert manager.log._database is not None
    manager.log._database.execute("PRAGMA query_only = 1")  # like a file system that became read-only
    with pytest.raises(InDoubt, match=r"cannot be written.*left: prepared, right: prepared"):
        tx.decide()
    assert tx.phase is Phase.IN_DOUBT
    wait_until(lambda: not site.left.in_doubt() and not site.right.in_doubt(), what="the manager's own recovery")
    assert site.agree() == []
    with manager.transaction("left", "right") as tx:
        work(tx, "tea")
    assert site.agree() == ["tea"]


def test_an_interrupted_transaction_is_completed_by_recovery(site: Site, manager: TransactionManager) -> None:
    tx = manager.transaction("left", "right")
    work(tx)
    tx.prepare()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    manager.callers.run = interrupt  # type: ignore[assignment,method-assign]  # where Ctrl-C interrupts
    with pytest.raises(KeyboardInterrupt):
        tx.decide()
    del manager.callers.run
    wait_until(lambda: not manager.unfinished(), what="the manager's own recovery")
    assert site.agree() == ["coffee"]


def test_many_threads_can_share_a_manager(site: Site, manager: TransactionManager) -> None:
    def run(number: int) -> None:
        for turn in range(10):
            with manager.transaction("left", "right") as tx:
                work(tx, f"{number}.{turn}")
                if turn % 3 == 2:
                    tx.rollback()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        manager.recover()  # does not touch transactions in progress
    for thread in threads:
        thread.join()
    assert len(site.agree()) == 8 * 7
    assert manager.unfinished() == []


@pytest.mark.parametrize("what", ["commit", "begin", "recover", "close"])
def test_a_forked_child_cannot_use_its_parents_manager(site: Site, manager: TransactionManager, what: str) -> None:
    tx = manager.transaction("left", "right")
    work(tx)
    calls: dict[str, Callable[[], object]] = {
        "commit": tx.commit,
        "begin": lambda: manager.transaction("left"),
        "recover": manager.recover,
    }
    pid = os.fork()
    if not pid:
        code = 1
        try:
            if what == "close":
                manager.close()
            else:
                with pytest.raises(UsageError, match="belongs to process"):
                    calls[what]()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    tx.commit()
    assert site.agree() == ["coffee"]


class TestUsage:
    def test_a_finished_transaction_cannot_be_used(self, manager: TransactionManager) -> None:
        with manager.transaction("left") as tx:
            pass
        for call in (tx.commit, tx.rollback, tx.decide, lambda: tx.enlist("right")):
            with pytest.raises(UsageError, match=f"transaction {tx.id} is committed"):
                call()

    def test_duplicate_and_unknown_participants_are_refused(self, manager: TransactionManager) -> None:
        with manager.transaction("left") as tx:
            with pytest.raises(UsageError, match="takes part in transaction"):
                tx.enlist("left")
            with pytest.raises(UsageError, match="no participant 'middle' is registered; known: left, right"):
                tx.enlist("middle")
            with pytest.raises(KeyError):
                tx["middle"]
            tx.rollback()

    def test_a_participant_that_cannot_begin_rolls_back_the_others(
        self, site: Site, manager: TransactionManager
    ) -> None:
        site.faults.lose("right connect")
        with pytest.raises(ConnectionError, match="lost at right connect"):
            manager.transaction("left", "right")
        assert site.left.open == 0

    def test_a_block_may_end_the_transaction_itself(self, site: Site, manager: TransactionManager) -> None:
        with manager.transaction("left", "right") as tx:
            work(tx)
            tx.commit()
        with manager.transaction("left", "right") as tx:
            work(tx, "tea")
            tx.prepare()
        assert site.agree() == ["coffee", "tea"]
        connection: Connection = site.left.connect()
        connection.close()
