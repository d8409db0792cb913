"""The methods of the dtx classes, beyond the tables of tests/conformance/test_dtx_states.py."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from escrowmq.core.branches.xa import XaResult, XaStatus
from escrowmq.core.branches.xid import Xid
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.wire.amqp091 import dtx_methods, spec
from escrowmq.wire.amqp091.errors import SyntaxFault
from escrowmq.wire.amqp091.frames import decode_method, frame
from escrowmq.wire.amqp091.handshake import State
from escrowmq.wire.amqp091.method import Method
from escrowmq.wire.amqp091.table import LongStr
from tests.harness.client import SimClient
from tests.unit.wire.amqp091.clients import Server, fails_channel, pair

NAMES = [name for name in spec.METHODS.values() if name.CLASS_ID in (101, 105) and name.TO_SERVER]


def xid(number: int) -> Xid:
    return Xid(1, b"g%d" % number, bytes(random.Random(number).randbytes(64)))


def prepared(server: Server, client: SimClient, count: int) -> list[Xid]:
    """Prepare branches with one message each, on channel 2."""
    client.open_channel(2)
    client.declare(2, "q")
    client.call(2, spec.DtxDemarcationSelect(), spec.DtxDemarcationSelectOk)
    for number in range(count):
        name = xid(number).encode()
        client.call(2, spec.DtxDemarcationStart(name), spec.DtxDemarcationStartOk)
        client.publish(2, "q", b"x")
        client.call(2, spec.DtxDemarcationEnd(name), spec.DtxDemarcationEndOk)
        client.call(2, spec.DtxCoordinationPrepare(name), spec.DtxCoordinationPrepareOk)
    return [xid(number) for number in range(count)]


def recovered(client: SimClient, *, startscan: bool = False, endscan: int = 0) -> list[Xid]:
    answer = client.call(1, spec.DtxCoordinationRecover(startscan, endscan), spec.DtxCoordinationRecoverOk)
    found: Any = answer.xids["xids"]
    return [Xid.decode(name.encode() if isinstance(name, str) else name) for name in found]


def test_every_method_of_the_server_is_handled() -> None:
    assert {method.INDEX for method in NAMES} == set(dtx_methods.HANDLERS)


@pytest.mark.rule("DTX-10")
def test_recover_gives_as_many_answers_as_necessary() -> None:
    server, client = pair(frame_max=4096)
    expected = prepared(server, client, 100)
    found = first = recovered(client, startscan=True)
    assert 40 < len(first) < 60
    while some := recovered(client):
        found = found + some
    assert found == expected
    assert recovered(client, endscan=1) == []
    assert recovered(client, startscan=True, endscan=1) == first
    client.send(1, spec.DtxCoordinationRecover())
    fails_channel(client, 1, 503, "startscan")


@pytest.mark.rule("DTX-10")
def test_a_scan_belongs_to_its_channel() -> None:
    server, client = pair()
    (name,) = prepared(server, client, 1)
    assert recovered(client, startscan=True) == [name]
    client.send(2, spec.DtxCoordinationRecover())
    fails_channel(client, 2, 503, "startscan")
    assert recovered(client) == []


@pytest.mark.rule("DTX-13")
def test_branches_belong_to_their_virtual_host() -> None:
    server, client = pair()
    (name,) = prepared(server, client, 1)
    ended = xid(1).encode()
    client.call(2, spec.DtxDemarcationStart(ended), spec.DtxDemarcationStartOk)
    server.broker.directory.add_vhost("other")
    server.broker.directory.record_access(server.broker.access.set_permission("guest", "other", ".*", ".*", ".*"))
    stranger = SimClient(server, "stranger", vhost="other")
    for method in (
        spec.DtxCoordinationPrepare(name.encode()),
        spec.DtxCoordinationCommit(name.encode()),
        spec.DtxCoordinationRollback(name.encode()),
        spec.DtxCoordinationForget(name.encode()),
        spec.DtxCoordinationSetTimeout(name.encode(), 1),
        spec.DtxCoordinationGetTimeout(name.encode()),
        spec.DtxDemarcationStart(ended, join=True),
        spec.DtxDemarcationStart(ended, resume=True),
        spec.DtxDemarcationEnd(ended),
    ):
        stranger.open_channel(1)
        stranger.call(1, spec.DtxDemarcationSelect(), spec.DtxDemarcationSelectOk)
        stranger.send(1, method)
        fails_channel(stranger, 1, 404, "no transaction branch")
    stranger.open_channel(1)
    assert recovered(stranger, startscan=True, endscan=1) == []
    assert recovered(client, startscan=True, endscan=1) == [name]


@pytest.mark.parametrize(
    ("condition", "code"),
    [
        (Condition.NOT_ALLOWED, 530),
        (Condition.INTERNAL, 541),
        (Condition.COMMAND_INVALID, 503),
        (Condition.ILLEGAL_STATE, 503),
        (Condition.NOT_FOUND, 404),
        (Condition.LIMIT_EXCEEDED, 506),
    ],
)
def test_any_refusal_closes_only_the_channel(condition: Condition, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    server, client = pair()
    client.open_channel(2)

    def refuse(*_: object) -> XaResult:
        raise BrokerError(condition, "because")

    monkeypatch.setattr(server.broker.large_requests, "prepare", refuse)
    client.send(1, spec.DtxCoordinationPrepare(xid(1).encode()))
    closed = fails_channel(client, 1, code, "because")
    assert (closed.class_id, closed.method_id) == (105, 40)
    client.declare(2, "still there")


@pytest.mark.rule("DTX-8", "DTX-9", "DTX-10")
@pytest.mark.parametrize("call", ["prepare", "commit", "rollback", "forget"])
def test_answers_wait_for_the_disk(call: str) -> None:
    server, client = pair()
    (name,) = prepared(server, client, 1)
    data = name.encode()
    coordinator = server.broker.coordinator
    if call == "prepare":
        coordinator.rollback(name)
        client.call(2, spec.DtxDemarcationStart(data), spec.DtxDemarcationStartOk)
        client.publish(2, "q", b"x")
        client.call(2, spec.DtxDemarcationEnd(data), spec.DtxDemarcationEndOk)
    elif call == "forget":
        coordinator.force(name, commit=True)
        server.end_turn()
        server.run_disk()
    methods: dict[str, tuple[Method, type[Method]]] = {
        "prepare": (spec.DtxCoordinationPrepare(data), spec.DtxCoordinationPrepareOk),
        "commit": (spec.DtxCoordinationCommit(data), spec.DtxCoordinationCommitOk),
        "rollback": (spec.DtxCoordinationRollback(data), spec.DtxCoordinationRollbackOk),
        "forget": (spec.DtxCoordinationForget(data), spec.DtxCoordinationForgetOk),
    }
    method, answer = methods[call]
    client.send(1, method, disk=False)
    assert not client.inbox
    server.run_disk()
    client.expect(1, answer)


@pytest.mark.rule("DTX-8", "TX-13")
@pytest.mark.parametrize("one_phase", [False, True])
def test_a_full_queue_rolls_the_branch_back_and_the_log_says_why(one_phase: bool) -> None:
    server, client = pair()
    client.declare(1, "q", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    client.call(1, spec.DtxDemarcationSelect(), spec.DtxDemarcationSelectOk)
    name = xid(1).encode()
    client.call(1, spec.DtxDemarcationStart(name), spec.DtxDemarcationStartOk)
    client.publish(1, "q", b"1", b"2")
    client.call(1, spec.DtxDemarcationEnd(name), spec.DtxDemarcationEndOk)
    if one_phase:
        flags = client.call(1, spec.DtxCoordinationCommit(name, True), spec.DtxCoordinationCommitOk).flags
    else:
        flags = client.call(1, spec.DtxCoordinationPrepare(name), spec.DtxCoordinationPrepareOk).flags
    assert flags == XaStatus.RB_ROLLBACK
    ((code, text),) = server.faults
    assert code == 506
    assert text.startswith(f"channel 1: branch {xid(1)} is rolled back: queue 'q' in vhost '/' is full")
    assert client.count(1, "q") == 0


@pytest.mark.rule("DTX-9", "TX-7")
def test_unroutable_messages_are_returned_to_the_committing_channel_after_prepare_too() -> None:
    _, client = pair()
    client.open_channel(2)
    client.call(2, spec.DtxDemarcationSelect(), spec.DtxDemarcationSelectOk)
    name = xid(1).encode()
    client.call(2, spec.DtxDemarcationStart(name), spec.DtxDemarcationStartOk)
    client.publish(2, "nowhere", b"lost", mandatory=True)
    client.call(2, spec.DtxDemarcationEnd(name), spec.DtxDemarcationEndOk)
    client.call(2, spec.DtxCoordinationPrepare(name), spec.DtxCoordinationPrepareOk)
    client.send(1, spec.DtxCoordinationCommit(name))
    client.expect(1, spec.BasicReturn)
    assert client.expect(1, spec.DtxCoordinationCommitOk).flags == XaStatus.OK
    assert not client.inbox


@pytest.mark.parametrize("method", NAMES, ids=lambda method: method.NAME)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_decoders_take_any_bytes(method: type[Method], data: st.DataObject) -> None:
    payload = method.INDEX.to_bytes(4, "big") + data.draw(st.binary(max_size=160))
    try:
        decoded = decode_method(payload)
    except SyntaxFault as fault:
        assert str(fault).startswith("SYNTAX_ERROR")  # noqa: PT017 - most bytes are none, some are
    else:
        assert type(decoded) is method


def longstr(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


ANY_XID = st.one_of(
    st.binary(max_size=150),
    st.builds(lambda gtrid, bqual: Xid(1, gtrid, bqual).encode(), st.binary(max_size=2), st.binary(max_size=1)),
)


@settings(max_examples=200, deadline=None)
@given(calls=st.lists(st.tuples(st.sampled_from(NAMES), ANY_XID, st.integers(0, 255)), max_size=12))
def test_any_calls_close_at_most_the_channel(calls: list[tuple[type[Method], bytes, int]]) -> None:
    """Any xid and any bits, in any order, give an answer or a channel exception."""
    _, client = pair()
    client.call(1, spec.DtxDemarcationSelect(), spec.DtxDemarcationSelectOk)
    for kind, name, bits in calls:
        parts = {"short": b"\0\0", "longstr": longstr(name), "bit": bytes((bits,)), "long": bytes((0, 0, 0, bits))}
        kinds = [wire for _, wire in kind.FIELDS]
        ticket = b"" if kind in (spec.DtxDemarcationSelect, spec.DtxCoordinationGetTimeout) else b"\0\0"
        wires = [wire for i, wire in enumerate(kinds) if wire != "bit" or "bit" not in kinds[:i]]
        payload = kind.INDEX.to_bytes(4, "big") + ticket + b"".join(parts[wire] for wire in wires)
        client.send_bytes(frame(1, 1, payload))
        said = client.inbox.popleft().method
        if isinstance(said, spec.ChannelClose):
            assert said.reply_code in (404, 406, 503, 530)
            client.send(1, spec.ChannelCloseOk())
            client.open_channel(1)
            client.call(1, spec.DtxDemarcationSelect(), spec.DtxDemarcationSelectOk)
        else:
            assert f"{kind.NAME}-ok" == said.NAME
    assert client.port.endpoint.state is State.RUNNING


@pytest.mark.rule("DTX-9", "DTX-10")
@pytest.mark.parametrize("outcome", [spec.DtxCoordinationCommit, spec.DtxCoordinationRollback])
@pytest.mark.parametrize("asked", ["for an outcome", "to recover", "to decide"])
def test_the_end_of_a_branch_is_reported_once_it_is_on_disk(outcome: type[Method], asked: str) -> None:
    """The manager then forgets its decision, so a crash must not restore the branch."""
    server, client = pair()
    (name,) = prepared(server, client, 1)
    client.send(2, outcome(name.encode()), disk=False)  # type: ignore[call-arg]  # both have an xid
    questions: dict[str, Method] = {
        "for an outcome": spec.DtxCoordinationCommit(name.encode()),
        "to recover": spec.DtxCoordinationRecover(True, 1),
        "to decide": spec.EscrowDecide(name.format_id, name.gtrid, {"bqual": [LongStr(name.bqual)]}),
    }
    client.send(1, questions[asked], disk=False)
    assert not client.inbox
    server.run_disk()
    client.collect()
    client.inbox.popleft()  # of channel 2
    if asked == "to recover":
        assert client.expect(1, spec.DtxCoordinationRecoverOk).xids == {"xids": []}
    else:
        fails_channel(client, 1, 404)
