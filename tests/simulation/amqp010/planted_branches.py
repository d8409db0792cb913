"""Planted bugs in the class `dtx` of AMQP 0-10 that the simulator must find. Some are known from other brokers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from escrowmq.core.branches.branch import TransactionBranch
from escrowmq.core.branches.xa import XaStatus
from escrowmq.core.branches.xid import Xid
from escrowmq.core.conditions import BrokerError
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.queues.runs import Stretch
from escrowmq.core.queues.unsettled import entries_by_consumer
from escrowmq.wire import branch_requests
from escrowmq.wire.amqp010 import dtx, settling
from escrowmq.wire.amqp010.codec import spec
from escrowmq.wire.amqp010.exceptions import ERROR_CODES, exception
from escrowmq.wire.amqp010.execution import Execution
from escrowmq.wire.amqp010.ports import Reply
from escrowmq.wire.amqp010.session import Session
from escrowmq.wire.amqp010.subscriptions import Subscriptions
from escrowmq.wire.demarcation import Demarcation

_complete = Execution.complete
_commit = branch_requests.commit


def answered_at_once(self: Execution, number: int, reply: Any) -> None:
    """Send results before the log is on disk."""
    _complete(self, number, Reply() if reply is None else reply._replace(after=0))


def refused_at_once(self: Session, error: BrokerError, number: int | None = None, code: int = 0) -> None:
    """Say that a branch is unknown before the record of its end is on disk."""
    self._raise(exception(ERROR_CODES[error.condition], error.text, number, code))


def branches_left_alone(self: Demarcation) -> None:
    """Leave the branch of a session that ends as it is, until its timeout, as a broker of the field does."""
    self._place.branch = None


def accepted_beside_the_branch(subscriptions: Subscriptions, branch: TransactionBranch, taken: list[Stretch]) -> int:
    """Accept deliveries at once, although the session works for a branch."""
    found = entries_by_consumer(taken)
    subscriptions.broker.engine.settle_each(found, Disposition.ACCEPTED)
    return len(found)


def committed_without_preparation(client: Any, xid: Xid, *, one_phase: bool) -> Any:
    """Commit a branch in one phase whenever it is not prepared."""
    del one_phase
    return _commit(client, xid, one_phase=client.broker.branches.find(xid).state.name != "PREPARED")


def deliveries_lost(self: Subscriptions) -> Iterator[None]:
    """Forget the deliveries of a session that ends."""
    self.broker.engine.holders.pop(self, None)
    return iter(())


def in_doubt_without_the_heuristic(client: Any) -> list[Xid]:
    """Do not report branches that an operator has decided."""
    found = client.broker.branches.in_doubt(client.vhost.name)
    return [branch.xid for branch in found if branch.state.name == "PREPARED"]


_STATUSES: Final = {**dtx.STATUSES, XaStatus.RDONLY: spec.XaStatus.XA_OK}

PLANTED: Final[dict[str, dict[tuple[Any, str], Any]]] = {
    "results before the disk": {(Execution, "complete"): answered_at_once},
    "exceptions before the disk": {(Session, "refuse"): refused_at_once},
    "branches of an ended session stay active": {(Demarcation, "leave"): branches_left_alone},
    "acceptances are not in the branch": {(settling, "_enlist"): accepted_beside_the_branch},
    "commit without a preparation": {(branch_requests, "commit"): committed_without_preparation},
    "deliveries of an ended session lost": {(Subscriptions, "returning"): deliveries_lost},
    "read-only reported as prepared": {(dtx, "STATUSES"): _STATUSES},
    "heuristic decisions not in doubt": {(branch_requests, "in_doubt"): in_doubt_without_the_heuristic},
}
"""The patches of each bug, by class or module and attribute."""
