"""Publishers wait while memory or disk run short, and nothing is lost."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pika
import pika.exceptions

from escrowmq.admin.socket.client import ask
from tests.broker import BrokerProcess, low_on_disk, running_broker, wait_until

MIB = 1 << 20


def held_back(broker: BrokerProcess) -> Any:
    return [why for told in ask(broker.data_dir, "connection.list") for why in told["held_back_by"]]


def status(broker: BrokerProcess) -> Any:
    return ask(broker.data_dir, "status")


class Publisher(threading.Thread):
    """Publishes messages of a megabyte, confirmed one by one; transient ones unless `durable`."""

    def __init__(self, broker: BrokerProcess, count: int, *, durable: bool = False) -> None:
        super().__init__(daemon=True)
        self.blocked: list[str] = []
        self.unblocked = 0
        self.confirmed = 0
        self.fault: Exception | None = None
        self._broker = broker
        self._count = count
        self._durable = durable

    def run(self) -> None:
        try:
            self._publish()
        except pika.exceptions.AMQPError as error:  # reported to the test
            self.fault = error

    def _publish(self) -> None:
        connection = pika.BlockingConnection(pika.URLParameters(self._broker.url))
        connection.add_on_connection_blocked_callback(lambda _, frame: self.blocked.append(frame.method.reason))
        connection.add_on_connection_unblocked_callback(lambda *_: self._unblock())
        channel = connection.channel()
        channel.queue_declare("q", durable=self._durable)
        channel.confirm_delivery()
        properties = pika.BasicProperties(delivery_mode=2 if self._durable else 1)
        for i in range(self._count):
            channel.basic_publish("", "q", i.to_bytes(4, "big") * (MIB // 4), properties)
            self.confirmed += 1
        connection.sleep(0)  # pika reports blocking only here
        while self.unblocked < len(
            self.blocked
        ):  # messages on their way to the consumer may have exceeded the limit again
            connection.process_data_events(0.1)
        connection.close()

    def _unblock(self) -> None:
        self.unblocked += 1


class Holder(threading.Thread):
    """Consumes messages and settles none until it closes, so that deliveries stay in the broker's memory."""

    def __init__(self, broker: BrokerProcess) -> None:
        super().__init__(daemon=True)
        self._connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        self._channel = self._connection.channel()
        self._channel.queue_declare("q")
        self._channel.basic_consume("q", lambda *_: None)

    def run(self) -> None:
        self._channel.start_consuming()
        self._connection.close()

    def leave(self) -> None:
        with suppress(pika.exceptions.ConnectionWrongStateError):  # if its queue was deleted, it ends by itself
            self._connection.add_callback_threadsafe(self._channel.stop_consuming)
        self.join(60)


@contextmanager
def limited(folder: Path, text: str) -> Iterator[BrokerProcess]:
    config = folder / "limits.toml"
    config.write_text(text)
    with running_broker(folder, "--config", str(config)) as broker:
        yield broker


def consume(broker: BrokerProcess, count: int) -> list[int]:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    seen = []
    for method, _, body in connection.channel().consume("q", auto_ack=True):
        assert method
        assert body == body[:4] * (MIB // 4)
        seen.append(int.from_bytes(body[:4], "big"))
        if len(seen) == count:
            break
    connection.close()
    return seen


def test_the_memory_alarm_blocks_publishers_until_consumers_have_made_room(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        base = status(broker)["memory"]["resident_bytes"]
    count = 120
    text = (  # a broker's own memory differs between machines, and a user's share shall not end before the alarm
        f"[memory]\nhigh_watermark = {base + 60 * MIB}\ngrace_seconds = 0\n"
        "[limits]\nheld_memory_per_user = 0.95\nheld_memory_per_vhost = 0.95\n"
    )
    with limited(tmp_path, text) as broker:
        holder = Holder(broker)
        holder.start()
        publisher = Publisher(broker, count)
        publisher.start()
        wait_until(lambda: status(broker)["alarms"] == ["memory"] or publisher.fault, 60, "the alarm")
        assert publisher.fault is None
        assert publisher.confirmed < count
        wait_until(lambda: held_back(broker) == ["alarm"], what="the publisher's next message")
        holder.leave()
        assert consume(broker, count) == list(range(count))
        publisher.join(60)
        assert publisher.confirmed == count
        assert publisher.blocked[0] == "low on memory"
        assert publisher.unblocked == len(publisher.blocked)
        assert "memory alarm on, publishers are blocked" in broker.log()
        wait_until(lambda: status(broker)["alarms"] == [], what="the end of the alarm")


def test_queues_alone_do_not_bring_the_memory_alarm(tmp_path: Path) -> None:
    """The messages of many queues can be on disk, although each queue may keep some in memory."""
    with running_broker(tmp_path) as broker:
        base = status(broker)["memory"]["resident_bytes"]
    count = 300
    text = f"[memory]\nhigh_watermark = {base + 200 * MIB}\ngrace_seconds = 0\nqueue_resident_bytes = '1GiB'\n"
    with limited(tmp_path, text) as broker:
        publisher = Publisher(broker, count, durable=True)
        publisher.start()
        publisher.join(90)
        assert (publisher.confirmed, publisher.blocked, publisher.fault) == (count, [], None)
        assert consume(broker, count) == list(range(count))


def test_the_disk_alarm_blocks_publishers_but_no_consumers(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        channel = connection.channel()
        channel.queue_declare("waiting", durable=True)
        channel.confirm_delivery()
        channel.basic_publish("", "waiting", b"a", pika.BasicProperties(delivery_mode=2))
        connection.close()
        assert broker.terminate() == 0
    with limited(tmp_path, low_on_disk()) as broker:
        publisher = Publisher(broker, 5)
        publisher.start()
        wait_until(lambda: held_back(broker) == ["alarm"] or publisher.fault, 60, "the alarm")
        assert status(broker)["alarms"] == ["disk"]
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        assert connection.channel().basic_get("waiting", auto_ack=True)[2] == b"a"
        connection.close()
        assert publisher.is_alive()
        assert publisher.confirmed == 0


def test_a_blocked_client_can_close_and_a_lost_one_is_noticed(tmp_path: Path) -> None:
    with limited(tmp_path, low_on_disk()) as broker:
        connections = [pika.BlockingConnection(pika.URLParameters(broker.url)) for _ in range(2)]
        polite, dead = connections
        channel = dead.channel()
        channel.queue_declare("of-the-dead", exclusive=True)
        channel.basic_publish("", "of-the-dead", b"kept back")
        dead.process_data_events(0)
        wait_until(lambda: held_back(broker) == ["alarm"], what="the publish")
        dead._impl._transport._sock.shutdown(socket.SHUT_RDWR)  # pika itself would first close the connection
        wait_until(lambda: status(broker)["connections"] == 1, what="the end of a connection that is not read")
        assert status(broker)["queues"]["count"] == 0
        polite.channel().queue_declare("left", exclusive=True)
        polite.close()
        wait_until(lambda: status(broker)["connections"] == 0)
