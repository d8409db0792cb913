"""The operators' view of branches, and their decisions."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from escrowmq.admin.operation import OperationRefused
from escrowmq.admin.pieces import Pieces
from escrowmq.admin.transactions import TransactionAdmin
from escrowmq.core.branches.xa import XaStatus
from escrowmq.core.branches.xid import Xid
from escrowmq.core.conditions import BrokerError
from escrowmq.wire.amqp091 import spec
from tests.harness.client import SimClient
from tests.unit.admin.processes import FakeProcess, done, perform
from tests.unit.wire.amqp091.clients import Server, bodies, pair
from tests.unit.xid_names.test_narayana import NAME as OF_NARAYANA
from tests.unit.xid_names.test_narayana import XID as NARAYANA

X = Xid(1, b"order-7", b"mq")
NAME = "1:6f726465722d37:6d71"


class Bench:
    """A broker with a branch that settles messages of `in` and publishes two to `out`; channel 1 works for it."""

    def __init__(self, *, prepared: bool = True) -> None:
        self.server: Server
        self.client: SimClient
        self.server, self.client = pair()
        client = self.client
        for queue in ("in", "out"):
            client.declare(1, queue)
        client.publish(1, "in", b"order")
        client.call(1, spec.DtxDemarcationSelect(), spec.DtxDemarcationSelectOk)
        client.call(1, spec.DtxDemarcationStart(X.encode()), spec.DtxDemarcationStartOk)
        assert client.get(1, "in") is not None
        client.send(1, spec.BasicAck(1))
        client.publish(1, "out", b"bill", b"parcel")
        if prepared:
            self.end()
            client.call(1, spec.DtxCoordinationPrepare(X.encode()), spec.DtxCoordinationPrepareOk)
        self.admin = TransactionAdmin(FakeProcess(self.server), Pieces())

    def end(self) -> None:
        self.client.call(1, spec.DtxDemarcationEnd(X.encode()), spec.DtxDemarcationEndOk)

    def do(self, operation: str, **arguments: Any) -> Any:
        return perform(self.admin.operations, operation, **arguments)

    def summary(self) -> Any:
        return done(self.admin.summary())

    def by_queue(self) -> Any:
        return done(Pieces().result(self.admin.by_queue()))


def test_a_branch_is_shown_with_its_messages() -> None:
    bench = Bench()
    bench.server.after(5000)
    (row,) = bench.do("tx.list")
    assert row == bench.do("tx.show", xid=NAME)
    assert row["owner"].startswith("guest from ")
    del row["owner"]
    assert row == {
        "xid": NAME,
        "name": NAME,
        "format_id": 1,
        "gtrid": "order-7",
        "bqual": "mq",
        "state": "prepared",
        "seconds": 5,
        "timeout": 60,
        "workers": 0,
        "vhost": "/",
        "published": [{"vhost": "/", "queue": "out", "messages": 2, "bytes": 10}],
        "settled": [{"vhost": "/", "queue": "in", "messages": 1, "bytes": 5}],
    }
    assert bench.summary() == {"branches": 1, "in_doubt": 1, "in_doubt_seconds": 5, "heuristic": 0}
    assert bench.by_queue() == {
        ("/", "in"): {"locked": 1, "withheld": 0, "reserved": 0},
        ("/", "out"): {"locked": 0, "withheld": 2, "reserved": 0},
    }


def test_only_prepared_branches_are_in_doubt() -> None:
    bench = Bench(prepared=False)
    assert bench.summary() == {"branches": 1, "in_doubt": 0, "in_doubt_seconds": 0, "heuristic": 0}
    assert bench.by_queue() == {}


def test_binary_parts_of_an_xid_are_not_shown_as_text() -> None:
    bench = Bench()
    name = Xid(1, b"\x00\xff", b"\x1b[")
    bench.client.call(1, spec.DtxDemarcationStart(name.encode()), spec.DtxDemarcationStartOk)
    shown = bench.do("tx.show", xid=str(name))
    assert (shown["xid"], shown["gtrid"], shown["bqual"]) == ("1:00ff:1b5b", None, None)


def test_a_branch_of_narayana_is_found_by_its_readable_name() -> None:
    bench = Bench()
    bench.client.call(1, spec.DtxDemarcationStart(NARAYANA.encode()), spec.DtxDemarcationStartOk)
    assert bench.do("tx.show", xid=OF_NARAYANA)["xid"] == str(NARAYANA)
    assert [row["name"] for row in bench.do("tx.list")] == [NAME, OF_NARAYANA]


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ("zoé".encode(), "zoé"),
        ("注文 7".encode(), "注文 7"),
        (b"", ""),
        ("zoé".encode("latin-1"), None),
        ("zoé".encode()[:-1], None),  # the last character is cut
        ("zoé\n".encode(), None),
        ("a\u202eb".encode(), None),  # a terminal would show what follows from right to left
        ("a\ufffdb".encode(), "a\ufffdb"),
    ],
)
def test_a_part_of_an_xid_is_text_if_it_is_printable_utf_8(part: bytes, text: str | None) -> None:
    bench = Bench()
    name = Xid(1, part, b"mq")
    bench.client.call(1, spec.DtxDemarcationStart(name.encode()), spec.DtxDemarcationStartOk)
    assert bench.do("tx.show", xid=str(name))["gtrid"] == text


@pytest.mark.rule("DTX-11")
@pytest.mark.parametrize(
    ("decision", "outcome", "flags", "left", "told"),
    [
        ("commit", "committed", XaStatus.HEUR_COM, ([], [b"bill", b"parcel"]), "settles {} and publishes {}"),
        ("rollback", "rolled back", XaStatus.HEUR_RB, ([b"order"], []), "would have settled {} and published {}"),
    ],
)
def test_an_operator_decides_and_the_transaction_manager_is_told(
    decision: str,
    outcome: str,
    flags: XaStatus,
    left: tuple[list[bytes], list[bytes]],
    told: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    bench = Bench()
    assert bench.do(f"tx.{decision}", xid=NAME)["outcome"] == outcome
    assert (bodies(bench.server, "in"), bodies(bench.server, "out")) == left
    assert bench.do("tx.show", xid=NAME)["state"] == f"heuristic_{outcome.replace(' ', '_')}"
    assert bench.summary()["heuristic"] == 1
    (line,) = caplog.messages
    assert f"an operator has {outcome} branch {NAME} of guest from " in line
    assert line.endswith("; it " + told.format("1 of queue 'in' in vhost '/'", "2 of queue 'out' in vhost '/'"))
    answer = bench.client.call(1, spec.DtxCoordinationCommit(X.encode()), spec.DtxCoordinationCommitOk)
    assert answer.flags == flags
    with pytest.raises(OperationRefused, match="is already heuristic"):
        bench.do(f"tx.{decision}", xid=NAME)
    bench.do("tx.forget", xid=NAME)
    assert bench.do("tx.list") == []


def test_a_branch_without_associated_channels_can_be_rolled_back(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(prepared=False)
    with pytest.raises(BrokerError, match="still associated"):
        bench.do("tx.rollback", xid=NAME)
    bench.end()
    with pytest.raises(OperationRefused, match="is active; only a prepared branch can be committed"):
        bench.do("tx.commit", xid=NAME)
    assert bench.do("tx.rollback", xid=NAME)["outcome"] == "rolled back"
    assert bodies(bench.server, "in") == [b"order"]
    assert bench.do("tx.list") == []
    assert not caplog.messages, "it was not in doubt"


@pytest.mark.parametrize("operation", ["tx.show", "tx.commit", "tx.rollback", "tx.forget"])
def test_unknown_branches_are_refused(operation: str) -> None:
    bench = Bench()
    with pytest.raises(OperationRefused, match="no branch 1:00:; `escrowmq tx list` shows"):
        bench.do(operation, xid="1:00:")
    with pytest.raises(BrokerError, match="malformed"):
        bench.do(operation, xid="nonsense")


def test_only_a_decided_branch_can_be_forgotten() -> None:
    bench = Bench()
    with pytest.raises(
        OperationRefused, match=f"branch {NAME} is prepared; only a branch that an operator has decided"
    ):
        bench.do("tx.forget", xid=NAME)


@pytest.mark.rule("DTX-11", "FAIR-1")
def test_an_operator_commits_a_large_branch_over_several_turns() -> None:
    bench = Bench(prepared=False)
    for i in range(30):
        bench.client.publish(1, "out", b"%d" % i)
        bench.client.publish(1, "in", b"%d" % i)
    bench.end()
    bench.client.call(1, spec.DtxCoordinationPrepare(X.encode()), spec.DtxCoordinationPrepareOk)
    bench.server.broker.transactions.large = 3
    bench.server.broker.engine.requests.turn = 1
    ended: list[bool] = []
    bench.server.broker.engine.at_each_turn(lambda: ended.append(True))
    assert bench.do("tx.commit", xid=NAME)["outcome"] == "committed"
    assert len(ended) > 3
    assert len(bodies(bench.server, "out")) == 32
