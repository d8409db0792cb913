"""Take an order from a queue, charge an account in PostgreSQL, send a shipment: all three happen, or none.

Every order is one global transaction over the broker and the database. This program, the broker and PostgreSQL may be
killed at any moment. After a restart the program continues: each order is charged and shipped exactly once, or is still
in its queue.

    pip install 'escrowmq[xa]'
    python examples/order_transfer.py --broker amqp://guest:guest@127.0.0.1:5672/ \
        --database postgresql://localhost/shop --log decisions.db --demo 10

The database must exist. Its URL may name a user and a password: `postgresql://USER:PASSWORD@localhost/shop`.
PostgreSQL needs `max_prepared_transactions` above 0 (in postgresql.conf, followed by a restart). `--demo 10` first
declares the queues, creates the table, and publishes ten orders. The program ends when no order is waiting.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
import psycopg

from escrowmq.client import BasicProperties, connect
from escrowmq.xa import RolledBack, TransactionManager

ORDERS, SHIPMENTS, DECLINED = "orders", "shipments", "declined"
PERSISTENT = BasicProperties(delivery_mode=2)


def transfer(manager: TransactionManager) -> str | None:
    """Process one order. Returns the queue that it was sent to, or None if no order is waiting.

    Raises RolledBack if nothing has happened; the call can then be repeated.
    """
    with manager.transaction("broker", "database", timeout=30) as tx, tx["broker"].channel() as channel:
        method, _, body = channel.basic_get(ORDERS)
        if method is None:
            tx.rollback()
            return None
        order = read(body)
        queue = SHIPMENTS if order is not None and charge(tx["database"], order) else DECLINED
        channel.basic_publish("", queue, body, PERSISTENT)
        channel.basic_ack(method.delivery_tag)
    return queue


def read(body: bytes) -> dict[str, Any] | None:
    """Returns the order in a message, or None if the message is not an order, which a retry would not change."""
    try:
        order = json.loads(body)
        return {"account": str(order["account"]), "amount": int(order["amount"])}
    except (ValueError, KeyError, TypeError):
        return None


def charge(database: Any, order: dict[str, Any]) -> bool:
    """Charge the account if it has enough money. Returns whether it was charged."""
    charged = database.execute(
        "UPDATE account SET balance = balance - %(amount)s WHERE name = %(account)s AND balance >= %(amount)s", order
    )
    return bool(charged.rowcount == 1)


def set_up(broker: str, database: str, orders: int) -> None:
    """Declare the queues, create a table with one account, and publish orders that it can pay."""
    with psycopg.connect(database) as bank:
        bank.execute("CREATE TABLE IF NOT EXISTS account (name text PRIMARY KEY, balance bigint NOT NULL)")
        bank.execute("INSERT INTO account VALUES ('alice', 1000000) ON CONFLICT DO NOTHING")
    with connect(broker) as connection, connection.channel() as channel:
        for queue in (ORDERS, SHIPMENTS, DECLINED):
            channel.queue_declare(queue, durable=True)
        channel.tx_select()
        for number in range(orders):
            order = {"id": number, "account": "alice", "amount": 10}
            channel.basic_publish("", ORDERS, json.dumps(order).encode(), PERSISTENT)
        channel.tx_commit()


@click.command()
@click.option("--broker", default="amqp://guest:guest@127.0.0.1:5672/", show_default=True, help="EscrowMQ's URL.")
@click.option("--database", default="postgresql://localhost/shop", show_default=True, help="PostgreSQL's URL.")
@click.option("--log", default="decisions.db", show_default=True, type=click.Path(path_type=Path), help="Decision log.")
@click.option("--demo", default=0, help="First set everything up, and publish this many orders.")
def main(broker: str, database: str, log: Path, demo: int) -> None:
    """Charge and ship every waiting order, each in one global transaction."""
    if demo:
        set_up(broker, database, demo)
    participants: dict[str, Callable[[], Any]] = {
        "broker": partial(connect, broker),
        "database": partial(psycopg.connect, database),
    }
    with TransactionManager("order-transfer", log, participants) as manager:
        done = 0
        while True:
            try:
                queue = transfer(manager)
            except RolledBack as error:
                click.echo(f"trying again: {error}")
                continue
            if queue is None:
                break
            done += 1
        click.echo(f"{done} orders processed, none waiting")


if __name__ == "__main__":
    main()
