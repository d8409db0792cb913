"""The class `dtx`, beyond the tables of tests/conformance/test_dtx_states.py."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from escrowmq.core.branches.branch import Limits
from escrowmq.core.branches.xa import XaStatus as CoreStatus
from escrowmq.core.branches.xid import Xid as CoreXid
from escrowmq.wire.amqp010.codec.spec import (
    DtxCommit,
    DtxEnd,
    DtxForget,
    DtxGetTimeout,
    DtxPrepare,
    DtxRecover,
    DtxRollback,
    DtxSelect,
    DtxSetTimeout,
    DtxStart,
    ExecutionException,
    ExecutionResult,
    GetTimeoutResult,
    MessageAccept,
    QueueDeclare,
    RecoverResult,
    SessionDetach,
    SessionDetached,
    XaResult,
    XaStatus,
    Xid,
)
from escrowmq.wire.amqp010.codec.structs import Command
from escrowmq.wire.amqp010.codec.types import Array
from escrowmq.wire.amqp010.dtx import STATUSES, STRUCT32
from tests.unit.wire.amqp010.branches import MANY, X, Y, done, much_work, work
from tests.unit.wire.amqp010.clients import Client, SharingServer, server
from tests.unit.wire.amqp010.messaging import publish, subscribe
from tests.unit.wire.amqp091.clients import bodies

OK = XaResult(XaStatus.XA_OK)


def prepared(client: Client, *xids: Xid) -> None:
    """Prepare branches with one message each."""
    client.do(QueueDeclare("q", durable=True))
    client.do(DtxSelect())
    for xid in xids or (X,):
        assert client.do(DtxStart(xid)) == OK
        work(client, b"work")
        assert client.do(DtxEnd(xid)) == OK
        assert client.do(DtxPrepare(xid)) == OK


def second(made: SharingServer) -> Client:
    """Another client, with a session of its own."""
    other = Client(made, attaches=False)
    other.attach(1, b"other")
    return other


def test_every_status_of_the_core_has_one_of_the_specification() -> None:
    assert STATUSES.keys() == set(CoreStatus)
    assert set(STATUSES.values()) == set(XaStatus)
    names = {ours.name: theirs.name.removeprefix("XA_") for ours, theirs in STATUSES.items()}
    assert all(ours.replace("_", "") == theirs for ours, theirs in names.items())


@pytest.mark.rule("DTX-10")
def test_recover_names_all_branches_in_doubt_at_once() -> None:
    xids = [Xid(7, b"g%d" % number, b"b" * 64) for number in range(1000)]
    made = server()
    prepared(Client(made), *xids)
    client = second(made)
    assert client.do(DtxRecover()) == RecoverResult(Array(xids, code=STRUCT32))
    for xid in xids:
        assert client.do(DtxRollback(xid)) == OK
    assert client.do(DtxRecover()) == RecoverResult(Array([], code=STRUCT32))


@pytest.mark.rule("FAIR-1")
def test_reports_of_many_branches_are_divided_into_turns() -> None:
    client = Client()
    prepared(client, *[Xid(7, b"g%d" % number, b"b") for number in range(100)])
    client.server.broker.engine.requests.turn = client.server.broker.engine.requests.left = 50
    client.server.receive(client.port, b"".join([client.octets(DtxRecover()) for _ in range(3)]))
    client.collect()
    assert client.port.endpoint.unread > 0


@pytest.mark.rule("DTX-11")
@pytest.mark.parametrize(("commit", "status"), [(True, XaStatus.XA_HEURCOM), (False, XaStatus.XA_HEURRB)])
@pytest.mark.parametrize("call", [DtxCommit, DtxRollback])
def test_an_operators_decision_is_told_until_it_is_forgotten(commit: bool, status: XaStatus, call: Any) -> None:
    client = Client()
    prepared(client)
    client.server.broker.coordinator.force(CoreXid(1, b"g", b"b"), commit=commit)
    assert client.do(call(X)) == XaResult(status)
    assert client.do(DtxRecover()).in_doubt == [X]
    client.do(DtxForget(X))
    assert client.do(DtxRecover()).in_doubt == []


@pytest.mark.rule("DTX-12")
def test_a_timeout_is_told_as_it_was_set() -> None:
    client = Client()
    client.do(DtxSelect())
    client.do(DtxStart(X))
    assert client.do(DtxGetTimeout(X)) == GetTimeoutResult(60)
    client.do(DtxSetTimeout(X, 5))
    assert client.do(DtxGetTimeout(X)) == GetTimeoutResult(5)
    client.server.now += 5001
    client.server.end_turn()
    client.do(DtxSetTimeout(X, 50))
    assert client.do(DtxEnd(X)) == XaResult(XaStatus.XA_RBTIMEOUT)


@pytest.mark.rule("DTX-13")
@pytest.mark.parametrize(
    "xid",
    [
        None,
        Xid(None, b"g", b"b"),
        Xid(1, None, b"b"),
        Xid(1, b"g", None),
        Xid(1, b"g" * 65, b"b"),
        Xid(1, b"g", b"b" * 65),
    ],
    ids=repr,
)
@pytest.mark.parametrize(
    "kind", [DtxStart, DtxEnd, DtxPrepare, DtxCommit, DtxRollback, DtxForget, DtxGetTimeout, DtxSetTimeout]
)
def test_an_xid_that_lacks_a_part_or_is_too_long_is_refused(kind: Any, xid: Xid | None) -> None:
    client = Client()
    client.do(DtxSelect())
    command = kind(xid)
    if kind is DtxSetTimeout:
        command.timeout = 1
    client.refused(command, 542)


@pytest.mark.rule("DTX-12")
def test_a_timeout_that_is_absent_is_refused() -> None:
    client = Client()
    client.do(DtxSelect())
    client.do(DtxStart(X))
    client.refused(DtxSetTimeout(X), 542)


@pytest.mark.rule("DTX-13")
def test_the_longest_xid_is_taken() -> None:
    client = Client()
    prepared(client, Xid(2**32 - 1, b"g" * 64, b"b" * 64))
    assert client.do(DtxRecover()).in_doubt == [Xid(2**32 - 1, b"g" * 64, b"b" * 64)]


@pytest.mark.rule("DTX-8", "DTX-9", "DTX-10")
@pytest.mark.parametrize(
    "command", [DtxCommit(X), DtxRollback(X), DtxPrepare(Y), DtxRecover(), DtxCommit(Y, one_phase=True)], ids=repr
)
def test_answers_wait_for_the_disk(command: Command) -> None:
    made = server()
    client = Client(made)
    prepared(client)
    client.do(DtxStart(Y))
    work(client, b"more")
    client.do(DtxEnd(Y))
    other = second(made)
    work_unsynced(client)
    number = other.command(command, disk=False)
    assert other.idle()
    made.run_disk()
    other.collect()
    assert other.expect(ExecutionResult).command_id == number
    other.completes(number)


def work_unsynced(client: Client) -> None:
    """Let the log end with something that is not on disk."""
    client.command(QueueDeclare("another", durable=True), disk=False)


@pytest.mark.rule("DTX-9")
@pytest.mark.parametrize("outcome", [DtxCommit(X), DtxRollback(X)], ids=repr)
def test_the_end_of_a_branch_is_reported_once_it_is_on_disk(outcome: Command) -> None:
    """The manager then forgets its decision, so a crash must not restore the branch."""
    made = server()
    client = Client(made)
    prepared(client)
    other = second(made)
    client.command(outcome, disk=False)
    number = other.command(DtxCommit(X), disk=False)
    assert other.idle()
    made.run_disk()
    other.collect()
    assert other.raised(404, number).description == "no transaction branch with xid 1:67:62"


@pytest.mark.rule("DTX-8", "TX-13")
@pytest.mark.parametrize("command", [DtxPrepare(X), DtxCommit(X, one_phase=True)], ids=repr)
def test_a_full_queue_rolls_the_branch_back_and_the_log_says_why(command: Command) -> None:
    client = Client()
    client.do(QueueDeclare("q", arguments={"qpid.max_count": 1}))
    client.do(DtxSelect())
    client.do(DtxStart(X))
    work(client, b"1", b"2")
    client.do(DtxEnd(X))
    assert client.do(command) == XaResult(XaStatus.XA_RBROLLBACK)
    ((code, text),) = client.server.faults
    assert code == 506
    assert text.startswith("channel 1: branch 1:67:62 is rolled back: queue 'q' in vhost '/' is full")


@pytest.mark.rule("DTX-9", "FAIR-1")
@pytest.mark.parametrize("call", ["two phases", "one phase"])
def test_a_large_branch_is_committed_in_pieces(call: str) -> None:
    client = Client()
    made = client.server
    client.do(DtxSelect())
    client.do(DtxStart(X))
    much_work(client)
    client.do(DtxEnd(X))
    commands = [DtxPrepare(X), DtxCommit(X)] if call == "two phases" else [DtxCommit(X, one_phase=True)]
    for command in commands:
        number = client.sent[1]
        made.receive(client.port, client.octets(command))
        turns = turns_until_output(client)
        assert turns > 1
        assert client.expect(ExecutionResult).value == OK
        client.completes(number)
    made.end_turn()
    made.run_disk()
    assert done(made) == [b"work"] * MANY


def turns_until_output(client: Client) -> int:
    """Run turns until the server has sent something. Return their number."""
    for turns in range(1, 1000):
        client.server.end_one_turn()
        client.server.run_disk()
        client.collect()
        if not client.idle():
            return turns
    raise AssertionError("nothing was sent")


@pytest.mark.rule("DTX-13")
def test_branches_belong_to_their_virtual_host() -> None:
    made = server()
    client = Client(made)
    prepared(client)
    made.broker.directory.add_vhost("other")
    made.broker.directory.record_access(made.broker.access.set_permission("guest", "other", ".*", ".*", ".*"))
    stranger = Client(made, opens=False)
    stranger.log_in()
    stranger.tune()
    stranger.open("other")
    stranger.attach(1, b"stranger")
    assert stranger.do(DtxRecover()).in_doubt == []
    stranger.refused(DtxCommit(X), 404)


SIZE = 10_000
"""The octets of each message, which dwarf what a message needs besides."""


def limited(limits: Limits) -> Client:
    """Return a client with a branch that has two messages, which its limits allow."""
    client = Client(server(transaction=limits))
    client.do(QueueDeclare("q", durable=True))
    client.do(DtxSelect())
    client.do(DtxStart(X))
    publish(client, bytes(SIZE), bytes(SIZE))
    client.completes(3, 4)
    return client


LIMITS = pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(operations=2), "transaction has more than 2 operations"),
        (Limits(bytes=2 * SIZE + SIZE // 2), f"transaction has more than {2 * SIZE + SIZE // 2} bytes"),
    ],
    ids=["operations", "bytes"],
)


@pytest.mark.rule("DTX-14", "TX-13")
@LIMITS
def test_the_work_of_a_branch_is_limited(limits: Limits, reason: str) -> None:
    client = limited(limits)
    number = client.sent[1]
    publish(client, bytes(SIZE))
    assert (client.raised(506, number).description or "").startswith(reason)
    assert second(client.server).do(DtxPrepare(X)) == XaResult(XaStatus.XA_RBROLLBACK)
    assert bodies(client.server, "q") == []


@pytest.mark.rule("TX-13")
@LIMITS
def test_work_up_to_the_limit_is_committed(limits: Limits, reason: str) -> None:
    client = limited(limits)
    assert client.do(DtxEnd(X)) == OK
    assert client.do(DtxPrepare(X)) == OK
    assert client.do(DtxCommit(X)) == OK
    assert bodies(client.server, "q") == [bytes(SIZE)] * 2


@pytest.mark.rule("DTX-14", "TX-13")
def test_acceptances_count_as_work_of_a_branch() -> None:
    client = Client(server(transaction=Limits(operations=2)))
    client.do(QueueDeclare("q", durable=True))
    publish(client, b"0", b"1", b"2")
    client.inbox.clear()
    subscribe(client)
    client.inbox.clear()
    client.do(DtxSelect())
    client.do(DtxStart(X))
    client.do(MessageAccept(((0, 1),)))
    client.refused(MessageAccept(((2, 2),)), 506)
    assert second(client.server).do(DtxPrepare(X)) == XaResult(XaStatus.XA_RBROLLBACK)
    assert sorted(bodies(client.server, "q")) == [b"0", b"1", b"2"]


KINDS: Any = (DtxStart, DtxEnd, DtxPrepare, DtxCommit, DtxRollback, DtxForget, DtxGetTimeout, DtxSetTimeout, DtxRecover)
XIDS = st.builds(Xid, st.integers(0, 1), st.sampled_from([b"", b"g"]), st.sampled_from([None, b"", b"b"]))


@settings(max_examples=150, deadline=None)
@given(calls=st.lists(st.tuples(st.sampled_from(KINDS), XIDS, st.booleans(), st.booleans()), max_size=12))
def test_any_calls_end_at_most_the_session(calls: list[tuple[Any, Xid, bool, bool]]) -> None:
    """Any xid and any flags, in any order, give an answer or an execution exception."""
    client = Client()
    client.do(DtxSelect())
    for kind, xid, first, other in calls:
        command = kind()
        for (name, wire), value in zip(kind.FIELDS, (xid, first, other), strict=False):
            setattr(command, name, int(first) if wire == "uint32" else value)
        number = client.command(command)
        if isinstance(client.inbox[0].operation, ExecutionException):
            raised = client.expect(ExecutionException)
            assert raised.error_code in (404, 409, 503, 530, 542)
            client.control(SessionDetached(client.expect(SessionDetach).name, 0))
            client.attach(1)
            client.do(DtxSelect())
            continue
        if isinstance(client.inbox[0].operation, ExecutionResult):
            client.expect(ExecutionResult)
        client.completes(number)
