"""Recovery: ask every participant for its branches in doubt, and complete them according to the log.

Presumed abort: a branch without a decision in the log is rolled back if it belongs to this manager and not to a
transaction in progress. A decision is removed from the log when every participant has been asked and has nothing left
of it.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from escrowmq.xa.branch import Result, complete
from escrowmq.xa.drivers import wrong_place
from escrowmq.xa.log import Decision, DecisionLog
from escrowmq.xa.states import COMMIT, HEURISTIC, ROLLBACK, BranchState
from escrowmq.xa.xids import FORMAT_ID, BranchId, is_of, is_of_namesake, parse

logger = logging.getLogger("escrowmq.xa")


@dataclass(eq=False)
class Report:
    """The results of a recovery.

    Lists contain `TRANSACTION PARTICIPANT.NUMBER`; dictionaries also contain the reason.
    """

    committed: list[str] = field(default_factory=list)
    rolled_back: list[str] = field(default_factory=list)
    heuristic: dict[str, str] = field(default_factory=dict)
    """Completed by an operator against the decision; see `TransactionManager.forget`."""
    unresolved: dict[str, str] = field(default_factory=dict)
    """The participant could not complete the branch; recovery tries again later."""
    unreachable: dict[str, str] = field(default_factory=dict)
    """The participant, which is the key, could not be asked; recovery tries again later."""
    foreign: list[str] = field(default_factory=list)
    """In doubt, but made by a manager of the same name with another log, and therefore not touched."""

    @property
    def complete(self) -> bool:
        """Whether nothing is left to try again."""
        return not self.unresolved and not self.unreachable

    def __str__(self) -> str:
        lines = [f"committed {gtrid}" for gtrid in self.committed]
        lines += [f"rolled back {gtrid}" for gtrid in self.rolled_back]
        lines += [f"completed by hand {gtrid}: {why}" for gtrid, why in self.heuristic.items()]
        lines += [f"unresolved {gtrid}: {why}" for gtrid, why in self.unresolved.items()]
        lines += [f"not reached {name}: {why}" for name, why in self.unreachable.items()]
        lines += [f"left alone {gtrid}: it belongs to another log" for gtrid in self.foreign]
        return "\n".join(lines) or "nothing was in doubt"


@dataclass(eq=False)
class Answers:
    """The results at one participant."""

    branches: dict[BranchId, tuple[str, Result]] = field(default_factory=dict)
    foreign: list[BranchId] = field(default_factory=list)


def ask(
    name: str,
    connect: Callable[[], Any],
    log: DecisionLog,
    lives: Callable[[str], bool],
    before: Mapping[str, Decision],
) -> Answers:
    """Complete all branches at the participant `name` that belong to this manager and to no transaction in progress.

    `lives` says whether a transaction is in progress. `before` are the decisions of transactions that are not. Their
    branches are completed even if the participant does not list them: a list need not be complete, and a decision is
    dispensable only when the participant itself says that it has no such branch.

    The order matters: first the list, then whether the transaction is in progress, then the log. A transaction writes
    its decision before it ends, so a branch that is listed, not in progress and not in the log was never decided.
    """
    answers = Answers()
    listed: set[BranchId] = set()
    connection = connect()
    try:
        for xid in connection.tpc_recover():
            branch = parse(xid)
            if branch is None or branch.participant != name:
                continue
            if not is_of(branch.gtrid, log.manager, log.identity):
                if is_of_namesake(branch.gtrid, log.manager, log.identity):
                    answers.foreign.append(branch)
                continue
            listed.add(branch)
            if lives(branch.gtrid):
                continue
            decision = log.get(branch.gtrid)
            decided = ROLLBACK if decision is None else decision.outcome
            if decision is not None and decision.branches.get(branch.bqual) in HEURISTIC:
                continue  # already recorded; kept until `forget`
            place = wrong_place(connection, xid)
            if place is None:
                result = complete(connection, xid, decided)
            else:
                problem = RuntimeError(
                    f"the branch is in the database {place}, to which this participant does not connect"
                )
                result = Result(BranchState.UNANSWERED, problem)
            answers.branches[branch] = (decided, result)
            _leave_transaction(connection)
        for branch, decided in _told_before(before, name, listed):
            result = complete(connection, connection.xid(FORMAT_ID, *branch), decided)
            if result.state in HEURISTIC or result.state is BranchState.UNANSWERED:
                answers.branches[branch] = (decided, result)
            _leave_transaction(connection)
    finally:
        with contextlib.suppress(Exception):
            connection.close()
    return answers


def _told_before(before: Mapping[str, Decision], name: str, listed: Collection[BranchId]) -> list[tuple[BranchId, str]]:
    branches = [
        (BranchId(gtrid, bqual), decision.outcome)
        for gtrid, decision in before.items()
        for bqual, state in decision.branches.items()
        if state is BranchState.PREPARED
    ]
    return [(branch, decided) for branch, decided in branches if branch.participant == name and branch not in listed]


def _leave_transaction(connection: Any) -> None:
    """Roll back: a failed statement may have left a transaction open, in which the next call would be refused."""
    with contextlib.suppress(Exception):
        connection.rollback()


def settle(log: DecisionLog, before: Mapping[str, Decision], answers: Mapping[str, Answers], report: Report) -> None:
    """Record in the log which decisions are finished and which branches an operator completed, and report it.

    `before` are the decisions of transactions that were not in progress when the participants were asked.
    """
    outcomes: dict[str, dict[str, BranchState]] = {}
    for answer in answers.values():
        report.foreign += [f"{branch.gtrid} {branch.bqual}" for branch in answer.foreign]
        for branch, (decided, result) in answer.branches.items():
            _report(report, f"{branch.gtrid} {branch.bqual}", decided, result)
            outcomes.setdefault(branch.gtrid, {})[branch.bqual] = result.state
    for gtrid in outcomes.keys() - before.keys():  # rolled back, or decided meanwhile
        by_hand = _by_hand(outcomes[gtrid])
        if by_hand:
            found = log.get(gtrid) or Decision(gtrid, ROLLBACK, time.time(), {})
            log.write(found._replace(branches={**found.branches, **by_hand}))
    for gtrid, decision in before.items():
        states = {**decision.branches, **_by_hand(outcomes.get(gtrid, {}))}
        for bqual, state in states.items():
            name = BranchId(gtrid, bqual).participant
            if state is not BranchState.PREPARED or name not in answers:
                continue
            done = BranchState.COMMITTED if decision.outcome == COMMIT else BranchState.ROLLED_BACK
            state = outcomes.get(gtrid, {}).get(bqual, done)  # without another result, it is done
            states[bqual] = BranchState.PREPARED if state is BranchState.UNANSWERED else state
        _keep(log, decision, states)


def _by_hand(states: Mapping[str, BranchState]) -> dict[str, BranchState]:
    return {bqual: state for bqual, state in states.items() if state in HEURISTIC}


def _keep(log: DecisionLog, decision: Decision, states: Mapping[str, BranchState]) -> None:
    left = set(states.values())
    if HEURISTIC & left:
        if states != decision.branches:
            log.write(decision._replace(branches=states))
    elif BranchState.PREPARED not in left:
        log.finish(decision.gtrid)


def _report(report: Report, gtrid: str, decided: str, result: Result) -> None:
    why = " ".join(str(result.problem).split())
    if result.state in HEURISTIC:
        report.heuristic[gtrid] = f"{result.state.value}, but {decided} was decided"
    elif result.state is BranchState.UNANSWERED:
        report.unresolved[gtrid] = why
    elif decided == COMMIT:
        report.committed.append(gtrid)
    else:
        report.rolled_back.append(gtrid)


def unregistered(decisions: Mapping[str, Decision], names: Collection[str]) -> dict[str, str]:
    """Return the branches of participants that are not registered."""
    return {
        f"{gtrid} {bqual}": "its participant is not registered"
        for gtrid, decision in decisions.items()
        for bqual, state in decision.branches.items()
        if state is BranchState.PREPARED and BranchId(gtrid, bqual).participant not in names
    }
