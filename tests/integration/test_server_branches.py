"""Branches in doubt on the real process, over AMQP 0-10: killed, restarted, and decided over either protocol."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from escrowmq.core.branches.xid import Xid as CoreXid
from escrowmq.wire.amqp010.codec.spec import (
    DtxCommit,
    DtxEnd,
    DtxPrepare,
    DtxRecover,
    DtxRollback,
    DtxSelect,
    DtxStart,
    QueueDeclare,
    XaResult,
    XaStatus,
    Xid,
)
from escrowmq.wire.amqp091 import spec as spec091
from tests.broker import BrokerProcess, running_broker
from tests.harness.amqp010_client import TIMEOUT, SocketClient
from tests.integration.test_server_transactions import WireClient

X = Xid(1, b"order-7", b"mq")
OK = XaResult(XaStatus.XA_OK)


def work(broker: BrokerProcess, *, prepares: bool) -> None:
    """Make a branch that takes an order from `in` and publishes a bill to `out`; its worker disconnects."""
    with SocketClient(broker.port) as worker:
        for queue in ("in", "out"):
            worker.do(QueueDeclare(queue, durable=True))
        worker.publish("in", b"order")
        worker.publish("in", b"next order")
        worker.do(DtxSelect())
        worker.subscribe("in")
        assert worker.do(DtxStart(X)) == OK
        assert worker.take("in") == b"order"
        worker.publish("out", b"bill")
        assert worker.do(DtxEnd(X)) == OK
        if prepares:
            assert worker.do(DtxPrepare(X)) == OK


def left(broker: BrokerProcess) -> tuple[list[bytes | None], bytes | None]:
    """Take two messages from `in`, and one from `out`."""
    with SocketClient(broker.port) as reader:
        assert reader.do(DtxRecover()).in_doubt == []
        reader.subscribe("in")
        reader.subscribe("out")
        return [reader.take("in"), reader.take("in")], reader.take("out")


@pytest.mark.rule("DTX-8", "DTX-9", "DTX-10", "DTX-14")
@pytest.mark.parametrize("protocol", ["0-10", "0-9-1"])
@pytest.mark.parametrize("outcome", ["commit", "rollback"])
def test_a_prepared_branch_survives_kill_and_so_does_its_outcome(tmp_path: Path, outcome: str, protocol: str) -> None:
    with running_broker(tmp_path) as broker:
        work(broker, prepares=True)
        broker.kill()
        broker.start()
        if protocol == "0-10":
            with SocketClient(broker.port) as manager:
                assert manager.do(DtxRecover()).in_doubt == [X]
                assert manager.do(DtxCommit(X) if outcome == "commit" else DtxRollback(X)) == OK
        else:
            decide_over_091(broker, outcome)
        broker.kill()
        broker.start()
        if outcome == "commit":
            assert left(broker) == ([b"next order", None], b"bill")
        else:
            assert left(broker) == ([b"order", b"next order"], None)


def decide_over_091(broker: BrokerProcess, outcome: str) -> None:
    name = CoreXid(1, b"order-7", b"mq")
    with socket.create_connection(("127.0.0.1", broker.port), TIMEOUT) as sock:
        manager = WireClient(sock)
        assert manager.recover() == [name]
        if outcome == "commit":
            manager.call(spec091.DtxCoordinationCommit(name.encode()), spec091.DtxCoordinationCommitOk)
        else:
            manager.call(spec091.DtxCoordinationRollback(name.encode()), spec091.DtxCoordinationRollbackOk)


@pytest.mark.rule("DTX-8", "DTX-14")
def test_a_branch_that_is_not_prepared_does_not_survive_kill(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        work(broker, prepares=False)
        broker.kill()
        broker.start()
        assert left(broker) == ([b"order", b"next order"], None)
