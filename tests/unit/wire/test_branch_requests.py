"""Who may ask for what about a branch, and what is told to whom."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from escrowmq.core.access.door import Door
from escrowmq.core.access.table import Operation
from escrowmq.core.branches.branch import Limits, Publication
from escrowmq.core.branches.xa import XaResult, XaStatus
from escrowmq.core.branches.xid import Xid
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.messages.envelope import Envelope
from escrowmq.journal.memory import MemoryStorage
from escrowmq.wire import branch_requests
from escrowmq.wire.demarcation import Demarcation
from tests.harness.server import SimServer

if TYPE_CHECKING:
    from escrowmq.core.branches.branch import TransactionBranch
    from escrowmq.core.branches.large_requests import Request

X = Xid(1, b"g", b"b")


class Client:
    """A client of one user, with nothing but what requests need."""

    def __init__(self, server: SimServer, user: str, vhost: str = "/") -> None:
        self.broker = server.broker
        self.vhost = server.broker.directory.vhost(vhost)
        self.door = Door(server.broker.access, user, self.vhost)
        self.branch: TransactionBranch | None = None
        self.demarcation = Demarcation(self, Limits(), user, f"{user}'s client")

    def start(self, *, join: bool = False, resume: bool = False) -> XaStatus:
        return branch_requests.start(self, self.demarcation, X, join=join, resume=resume)

    def publish_unroutable(self) -> None:
        assert self.branch is not None
        self.broker.transactions.enlist(self.branch, Publication(Envelope("x", "k"), [b"lost"], (), mandatory=True))

    def end(self) -> XaStatus:
        return self.demarcation.end(X, fail=False, suspend=False)


def server(*users: str) -> SimServer:
    """A server on which `owner` may do everything, and other users nothing."""
    made = SimServer(MemoryStorage(random.Random(1)))
    for user in ("owner", *users):
        made.broker.access.add_user(user, "")
    made.broker.access.set_permission("owner", "/", ".*", ".*", ".*")
    return made


def result(request: Request) -> XaResult:
    """Carry a request out."""
    try:
        while True:
            next(request)
    except StopIteration as end:
        found: XaResult = end.value
        return found


def refusal(request: Request) -> Condition:
    with pytest.raises(BrokerError) as refused:
        result(request)
    return refused.value.condition


@pytest.mark.rule("SEC-1", "DTX-3")
def test_a_stranger_cannot_join_a_branch() -> None:
    made = server("stranger")
    assert Client(made, "owner").start() is XaStatus.OK
    with pytest.raises(BrokerError) as refused:
        Client(made, "stranger").start(join=True)
    assert refused.value.condition is Condition.ACCESS_REFUSED


@pytest.mark.rule("DTX-2")
def test_a_place_that_works_for_a_branch_has_it() -> None:
    client = Client(server(), "owner")
    client.start()
    assert client.branch is client.broker.branches.by_xid[X]
    client.end()
    assert client.branch is None


@pytest.mark.rule("SEC-1")
@pytest.mark.parametrize("what", ["prepare", "commit"])
def test_a_stranger_is_not_told_that_a_branch_is_over(what: str) -> None:
    made = server("stranger")
    owner, stranger = Client(made, "owner"), Client(made, "stranger")
    owner.start()
    owner.end()
    if what == "prepare":
        assert refusal(branch_requests.prepare(stranger, X)) is Condition.ACCESS_REFUSED
    else:
        assert refusal(branch_requests.commit(stranger, X, one_phase=True)) is Condition.ACCESS_REFUSED


@pytest.mark.rule("DTX-13")
def test_a_branch_is_unknown_in_another_virtual_host() -> None:
    made = server()
    made.broker.directory.add_vhost("other")
    Client(made, "owner").start()
    with pytest.raises(BrokerError) as refused:
        branch_requests.known(Client(made, "owner", "other"), X, Operation.ROLL_BACK_BRANCH)
    assert refused.value.condition is Condition.NOT_FOUND


@pytest.mark.rule("DTX-10", "SEC-1")
def test_a_user_sees_the_branches_in_doubt_that_it_may_see() -> None:
    made = server("stranger")
    owner = Client(made, "owner")
    owner.start()
    owner.publish_unroutable()
    owner.end()
    assert branch_requests.in_doubt(owner) == []
    assert result(branch_requests.prepare(owner, X)).status is XaStatus.OK
    assert branch_requests.in_doubt(owner) == [X]
    assert branch_requests.in_doubt(Client(made, "stranger")) == []


@pytest.mark.rule("TX-7", "SEC-1")
@pytest.mark.parametrize(("user", "returned"), [("owner", 1), ("administrator", 0)])
def test_unroutable_messages_are_not_returned_to_an_administrator(user: str, returned: int) -> None:
    made = server("administrator")
    made.broker.access.set_tags("administrator", ("administrator",))
    owner = Client(made, "owner")
    owner.start()
    owner.publish_unroutable()
    owner.end()
    outcome = result(branch_requests.commit(Client(made, user), X, one_phase=True))
    assert outcome.status is XaStatus.OK
    assert len(outcome.returned) == returned
