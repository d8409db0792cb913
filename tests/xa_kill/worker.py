"""The application of a kill test, in a separate process: `transfer` moves orders, `recover` only recovers.

Before every step it prints the step's name and waits for a line on stdin, so that anything can be killed there.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import psycopg

from escrowmq.client import BasicProperties, Connection
from escrowmq.client.parameters import parameters
from escrowmq.xa import TransactionManager
from escrowmq.xa.log import DecisionLog

PERSISTENT = BasicProperties(delivery_mode=2)
AMOUNT = 10
DEADLINE_SECONDS = 60.0
TRANSACTION_SECONDS = 15.0

T = TypeVar("T")

_saying = threading.Lock()


def step(name: str) -> None:
    """Print the step, and wait for permission to continue."""
    with _saying:
        print(name, flush=True)
        if not sys.stdin.readline():
            sys.exit("nobody is there any more")


class Broker(Connection):
    """A connection to the broker that prints its steps."""

    def tpc_begin(self, xid: object, **keywords: Any) -> None:
        step("begin broker")
        super().tpc_begin(xid, **keywords)
        step("begun broker")

    def tpc_prepare(self, **keywords: Any) -> bool:
        return around("prepare broker", "prepared broker", lambda: super(Broker, self).tpc_prepare(**keywords))

    def tpc_commit(self, xid: object = None, **keywords: Any) -> None:
        names = ("commit broker", "committed broker") if xid is None else ("complete broker", "completed broker")
        around(*names, lambda: super(Broker, self).tpc_commit(xid, **keywords))

    def tpc_rollback(self, xid: object = None, **keywords: Any) -> None:
        if xid is None:
            super().tpc_rollback(**keywords)
        else:
            around("complete broker", "completed broker", lambda: super(Broker, self).tpc_rollback(xid, **keywords))

    def tpc_recover(self, **keywords: Any) -> list[Any]:
        return around("ask broker", "asked broker", lambda: list(super(Broker, self).tpc_recover(**keywords)))


class Bank(psycopg.Connection[Any]):
    """A connection to PostgreSQL that prints its steps."""

    def tpc_begin(self, xid: Any) -> None:
        around("begin bank", "begun bank", lambda: super(Bank, self).tpc_begin(xid))

    def tpc_prepare(self) -> None:
        around("prepare bank", "prepared bank", lambda: super(Bank, self).tpc_prepare())

    def tpc_commit(self, xid: Any = None) -> None:
        names = ("commit bank", "committed bank") if xid is None else ("complete bank", "completed bank")
        around(*names, lambda: super(Bank, self).tpc_commit(xid))

    def tpc_rollback(self, xid: Any = None) -> None:
        if xid is None:
            super().tpc_rollback()
        else:
            around("complete bank", "completed bank", lambda: super(Bank, self).tpc_rollback(xid))

    def tpc_recover(self) -> list[Any]:
        return around("ask bank", "asked bank", lambda: super(Bank, self).tpc_recover())


def around(before: str, after: str, call: Callable[[], T]) -> T:
    """Make a call with a step on each side of it."""
    step(before)
    result = call()
    step(after)
    return result


def transfer(manager: TransactionManager) -> None:
    """Move one order from the queue through the table to the other queue, in one global transaction."""
    step("transaction")
    with manager.transaction("broker", "bank", timeout=TRANSACTION_SECONDS) as tx, tx["broker"].channel() as channel:
        step("get")
        method, _, body = channel.basic_get("orders")
        assert method is not None, "there are orders"
        step("got")
        order = int(body)
        tx["bank"].execute("UPDATE account SET balance = balance - %s WHERE name = 'alice'", (AMOUNT,))
        tx["bank"].execute("INSERT INTO payment VALUES (%s)", (order,))
        step("updated")
        channel.basic_publish("", "shipments", body, PERSISTENT)
        step("published")
        channel.basic_ack(method.delivery_tag)
        step("acknowledged")
    step("done")


def say_decisions(log: DecisionLog) -> None:
    """Make the log print its steps too."""
    write = log.write

    def said(decision: Any) -> None:
        around("decide", "decided", lambda: write(decision))

    log.write = said  # type: ignore[method-assign]


def main(mode: str, broker: str, database: str, log: str, orders: str) -> None:
    """Move a number of orders, continuing after errors, then recover until nothing is left."""
    participants: dict[str, Callable[[], Any]] = {
        "broker": lambda: Broker(parameters(broker)),
        "bank": lambda: Bank.connect(database),
    }
    if mode == "recover":
        step("open log")
    manager = TransactionManager("kill", Path(log), recovery_interval=3600)
    for name, connect in participants.items():
        manager.register(name, connect)
    if mode == "transfer":
        say_decisions(manager.log)
        for _ in range(int(orders)):
            try:
                transfer(manager)
            except Exception as error:  # noqa: BLE001 - a participant was killed
                print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
                step("failed")
        step("recover")
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        report = manager.recover()
        print(report, file=sys.stderr, flush=True)
        if report.complete and not manager.unfinished():
            break
        if time.monotonic() > deadline:
            sys.exit(f"still not recovered: {report}")
        time.sleep(0.05)
    step("recovered")
    manager.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
