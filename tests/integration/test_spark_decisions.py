"""The driver's decision has its effect once, also if the broker is lost at any moment of it (PIPE-2, PIPE-7)."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from escrowmq.client import connect
from escrowmq.client.escrow import Escrow
from escrowmq.spark import sink
from escrowmq.spark.errors import EscrowSparkError
from escrowmq.spark.identity import Epoch
from escrowmq.spark.options import SinkOptions
from escrowmq.spark.writing import Written
from tests.broker import BrokerProcess, running_broker

PERSISTENT = b"\x10\x00\x02"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with running_broker(tmp_path_factory.mktemp("broker")) as found:
        yield found


@pytest.fixture
def queue(broker: BrokerProcess, request: pytest.FixtureRequest) -> str:
    with connect(broker.url) as connection:
        connection.channel().queue_declare(request.node.name, durable=True)
    return str(request.node.name)


def written(broker: BrokerProcess, queue: str, epoch: Epoch) -> list[Any]:
    """Publish a message in each of two branches, as two tasks would, and return their results."""
    with connect(broker.url) as connection:
        escrow = Escrow(connection)
        for bqual in (b"0", b"1"):
            xid = epoch.branch(bqual)
            escrow.start(xid, 60).basic_publish("", queue, bqual, PERSISTENT)
            escrow.end(xid)
            if not epoch.once:
                assert escrow.prepare(xid)
    return [Written(epoch, (bqual,), 1) for bqual in (b"0", b"1")]


def outcome(broker: BrokerProcess, queue: str) -> tuple[list[bytes], int]:
    """Return the bodies in a queue, and the number of branches in doubt."""
    with connect(broker.url) as connection:
        channel, bodies = connection.channel(), []
        while (found := channel.basic_get(queue, auto_ack=True))[2] is not None:
            bodies.append(found[2])
        return bodies, len(connection.tpc_recover())


class Loss:
    """Ends the connection at the first call of a method of Escrow: before it, or after its effect."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, method: str, *, after: bool) -> None:
        self.happened = False
        plain = getattr(Escrow, method)

        def lose(escrow: Escrow, *arguments: Any) -> Any:
            if self.happened:
                return plain(escrow, *arguments)
            self.happened = True
            answer = plain(escrow, *arguments) if after else None
            escrow.connection._transport._sock.shutdown(socket.SHUT_RDWR)
            return answer if method == "begin_prepare" else plain(escrow, *arguments)

        monkeypatch.setattr(Escrow, method, lose)


@pytest.mark.rule("PIPE-2")
@pytest.mark.rule("PIPE-7")
@pytest.mark.parametrize("once", [True, False])
@pytest.mark.parametrize("after", [True, False])
@pytest.mark.parametrize("method", ["finish_prepare", "decide"])
def test_a_decision_whose_connection_is_lost_is_made_once(
    broker: BrokerProcess, queue: str, monkeypatch: pytest.MonkeyPatch, method: str, after: bool, once: bool
) -> None:
    epoch = Epoch("", 0, transaction="job" + queue[-9:]) if once else Epoch(queue, 3)
    results = written(broker, queue, epoch)
    loss = Loss(monkeypatch, method, after=after)
    sink.decide(SinkOptions.of({"url": broker.url, "queue": queue}), results)
    assert loss.happened
    assert outcome(broker, queue) == ([b"0", b"1"], 0)


@pytest.mark.rule("PIPE-2")
def test_a_job_whose_branch_is_gone_is_not_written_in_part(broker: BrokerProcess, queue: str) -> None:
    epoch = Epoch("", 0, transaction="lost")
    results = written(broker, queue, epoch)
    with connect(broker.url) as connection:
        assert Escrow(connection).rollback(epoch.branch(b"1"))
    with pytest.raises(EscrowSparkError, match="was not committed, not even in part"):
        sink.decide(SinkOptions.of({"url": broker.url, "queue": queue}), results)
    sink.abandon(SinkOptions.of({"url": broker.url, "queue": queue}), results, epoch)
    assert outcome(broker, queue) == ([], 0)


@pytest.mark.rule("PIPE-7")
def test_branches_that_cancelled_tasks_prepare_later_do_not_stay(
    broker: BrokerProcess, queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "metadata").write_text('{"id": "e68dbe5f"}')
    options = SinkOptions.of({"url": broker.url, "queue": queue, "checkpointLocation": f"file://{tmp_path}"})
    late = iter([True])

    def prepare_late(seconds: float) -> None:
        if next(late, False):
            written(broker, queue, Epoch("e68dbe5f", 7))

    monkeypatch.setattr("escrowmq.spark.sink.time.sleep", prepare_late)
    sink.StreamWriter(options).abort([None, None], 7)
    assert outcome(broker, queue) == ([], 0)
