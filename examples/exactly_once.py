"""Move orders from a table through a queue into another table, each exactly once, whatever is killed meanwhile.

The sender writes each order and its message in one transaction of the shop's database. The receiver writes each
shipment and the record of its delivery in one transaction of the warehouse's database. Sender, broker and receiver may
be killed at any moment; start them again, and they go on. While the broker is down, they wait for it; if it refuses the
login, they end.

    python examples/exactly_once.py send --orders 1000
    python examples/exactly_once.py receive --orders 1000

`--broker amqp://guest:guest@127.0.0.1:5672/` names another broker, and `--database FILE` another database.

Both programs end when all orders have passed.
"""

from __future__ import annotations

import sqlite3
import time

import click

from escrowmq.amqp10 import Backoff, ExactlyOnceReceiver, ExactlyOnceSender, Message, queue
from escrowmq.client import AuthenticationError, OperationalError, connect

QUEUE = "example-orders"
BATCH = 20


def declare(broker: str) -> None:
    """Declare the queue, which may exist already. Raises ClickException if the broker refuses the login."""
    while True:
        try:
            with connect(broker) as connection, connection.channel() as channel:
                channel.queue_declare(QUEUE, durable=True)
                return
        except AuthenticationError as error:  # another attempt would be refused as well
            raise click.ClickException(str(error)) from None
        except OperationalError as error:  # the broker may be down at the moment
            click.echo(f"{error}; trying again", err=True)
            time.sleep(0.2)


@click.group()
def main() -> None:
    """Table to queue to table, exactly once."""


@main.command()
@click.option("--broker", default="amqp://guest:guest@127.0.0.1:5672/", show_default=True)
@click.option("--database", default="example-shop.db", show_default=True, help="An SQLite file.")
@click.option("--orders", default=1000, show_default=True, help="How many orders the shop takes in all.")
def send(broker: str, database: str, orders: int) -> None:
    """Take orders, and send each to the warehouse."""
    declare(broker)
    shop = sqlite3.connect(database, timeout=30)
    shop.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, item TEXT NOT NULL)")
    shop.commit()
    with ExactlyOnceSender(broker, queue(QUEUE), name="shop", database=database, reconnect=Backoff()) as sender:
        taken = shop.execute("SELECT count(*) FROM orders").fetchone()[0]
        while taken < orders:
            with shop:  # one transaction: the orders, and the messages that announce them
                for number in range(taken, min(taken + BATCH, orders)):
                    shop.execute("INSERT INTO orders VALUES (?, ?)", (number, f"item {number}"))
                    sender.put(Message({"order": number, "item": f"item {number}"}), shop)
            taken = min(taken + BATCH, orders)
            sender.flush(None)
        sender.flush(None)
    shop.close()
    click.echo(f"all {orders} orders were sent")


@main.command()
@click.option("--broker", default="amqp://guest:guest@127.0.0.1:5672/", show_default=True)
@click.option("--database", default="example-warehouse.db", show_default=True, help="An SQLite file.")
@click.option("--orders", default=1000, show_default=True, help="How many orders to ship before the program ends.")
def receive(broker: str, database: str, orders: int) -> None:
    """Ship orders."""
    declare(broker)
    with sqlite3.connect(database, timeout=30) as warehouse:
        warehouse.execute("CREATE TABLE IF NOT EXISTS shipments (order_id INTEGER NOT NULL, item TEXT NOT NULL)")
    warehouse.close()
    with ExactlyOnceReceiver(
        broker, queue(QUEUE), name="warehouse", database=database, reconnect=Backoff()
    ) as receiver:
        shipped = 0
        while shipped < orders:
            deliveries = receiver.receive_many(BATCH, timeout=1)
            with receiver.process(*deliveries) as connection:  # one transaction: the shipments, and that they are done
                for delivery in deliveries:
                    order = delivery.body
                    connection.execute("INSERT INTO shipments VALUES (?, ?)", (order["order"], order["item"]))
                shipped = connection.execute("SELECT count(*) FROM shipments").fetchone()[0]
    click.echo(f"all {orders} orders were shipped")


if __name__ == "__main__":
    main()
