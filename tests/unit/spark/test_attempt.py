"""Rows that are not surely prepared when the broker is lost are published again, in order, in new branches (PIPE-7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pyarrow as pa
import pytest

from escrowmq.client import Xid
from escrowmq.client.escrow import Escrow
from escrowmq.spark import attempt
from escrowmq.spark.attempt import Attempt
from escrowmq.spark.endpoint import Endpoint
from escrowmq.spark.errors import BrokerUnavailableError, EscrowSparkError

LOST = BrokerUnavailableError("lost", passing=True)


class Broker:
    """Branches as a broker has them, and the calls after which it is lost."""

    def __init__(self, *losses: int) -> None:
        self.prepared: dict[bytes, list[int]] = {}
        self.dropped: list[bytes] = []
        self._losses = set(losses)
        self._calls = 0

    def call(self, effect: Callable[[], object] = int) -> None:
        """Let a call take effect. If the broker is lost now, its answer is lost; the effect may not be."""
        self._calls += 1
        if self._calls % 2:
            effect()
        if self._calls in self._losses:
            raise LOST
        if not self._calls % 2:
            effect()


class Branches:
    """A task with two batches for each branch."""

    def __init__(self, broker: Broker, number: int) -> None:
        self.broker = broker
        self.number = number
        self.done: list[Xid] = []
        self.requests: list[tuple[Xid, list[int]]] = []
        self.rows: list[int] | None = None

    @property
    def full(self) -> bool:
        return self.rows is not None and len(self.rows) >= 4

    @property
    def waiting(self) -> int:
        return len(self.requests)

    @property
    def left(self) -> list[Xid]:
        return [xid for xid, _ in self.requests] + ([] if self.rows is None else [branch(self.number - 1)])

    def publish(self, batch: pa.RecordBatch) -> None:
        if self.rows is None:
            self.rows = []
            self.number += 1
        self.rows += batch.column(0).to_pylist()
        self.broker.call()

    def prepare(self) -> None:
        if self.rows is not None:
            self.broker.call()
            self.requests.append((branch(self.number - 1), self.rows))
            self.rows = None

    def wait(self, most: int) -> None:
        while len(self.requests) > most:
            xid, rows = self.requests[0]
            self.broker.call(lambda xid=xid, rows=rows: self.broker.prepared.update({xid.bqual: rows}))  # type: ignore[misc]
            self.done.append(xid)
            self.requests.pop(0)

    def drop(self, branches: list[Xid]) -> None:
        self.broker.dropped += [xid.bqual for xid in branches]


def branch(number: int) -> Xid:
    return Xid(1, b"epoch", b"%d" % number)


def trial(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Attempt:
    monkeypatch.setattr(attempt, "escrow", lambda *_: cast("Escrow", broker))
    monkeypatch.setattr("escrowmq.spark.reconnect.time.sleep", lambda _: None)
    make: Any = Branches
    return Attempt(Endpoint(url="amqp://127.0.0.1:1/"), "sink", 60, make)


def batches() -> list[pa.RecordBatch]:
    return [pa.record_batch({"id": [2 * i, 2 * i + 1]}) for i in range(9)]


@pytest.mark.parametrize("first", range(30))
@pytest.mark.parametrize("gap", [1, 2, 5])
def test_every_row_is_prepared_once_and_in_order_whenever_the_broker_is_lost(
    first: int, gap: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(first, first + gap)
    task = trial(broker, monkeypatch)
    for batch in batches():
        task.publish(batch)
    task.finish()
    rows = [row for bqual in task.branches for row in broker.prepared[bqual]]
    assert rows == list(range(18))
    assert task.messages == 18
    task.drop()
    assert set(broker.prepared) <= set(broker.dropped)


def test_an_attempt_without_rows_needs_no_branch(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    task = trial(broker, monkeypatch)
    task.publish(batches()[0].slice(0, 0))
    task.finish()
    task.drop()
    assert (task.branches, task.messages, broker.prepared, broker.dropped) == ((), 0, {}, [])


def test_a_fault_that_is_not_the_brokers_absence_ends_the_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    task = trial(Broker(), monkeypatch)

    def refuse(broker: Escrow) -> None:
        raise EscrowSparkError("a target queue is full")

    with pytest.raises(EscrowSparkError, match="is full"):
        task.ask(refuse)
