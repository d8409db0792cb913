"""Clients let memory or disk run out by declarations: what sets free goes on, and the broker starts again (FAIR-3).

The disk is a file system in memory of a few MiB, which a process in a namespace of its own has mounted.
"""

from __future__ import annotations

import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from escrowmq.admin.socket.client import ask
from tests.broker import BrokerProcess, wait_until

pytestmark = pytest.mark.rule("FAIR-3", "DUR-5")

MIB = 1 << 20
DISK = 40 * MIB
DURABLE = pika.BasicProperties(delivery_mode=2)
NOTE = {"x-note": "n" * 15_000}
MESSAGES = 40
JOURNAL = "[journal]\nsegment_bytes = '1MiB'\nsnapshot_bytes = '4MiB'\n"


@contextmanager
def small_disk() -> Iterator[Path]:
    """A folder on a disk of its own."""
    with tempfile.TemporaryDirectory(prefix="eq") as folder:
        script = f'mount -t tmpfs -o size={DISK} tmpfs "{folder}" && echo mounted && exec cat'
        try:
            holder = subprocess.Popen(
                ["unshare", "-rm", "sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        except FileNotFoundError:
            pytest.skip("needs unshare")
        with holder:
            assert holder.stdin is not None
            assert holder.stdout is not None
            if holder.stdout.readline() != b"mounted\n":
                pytest.skip("needs user namespaces, to mount a small disk")
            yield Path(f"/proc/{holder.pid}/root{folder}")
            holder.stdin.close()


class Flood(threading.Thread):
    """Declares queues with large arguments, binds and subscribes again and again. `refusals` are the broker's."""

    def __init__(self, broker: BrokerProcess) -> None:
        super().__init__(daemon=True)
        self.stopped = threading.Event()
        self.refusals: dict[str, str] = {}
        self.fault: Exception | None = None
        self._url = broker.url
        self._names = count()

    def run(self) -> None:
        try:
            connection = pika.BlockingConnection(pika.URLParameters(self._url))
            connection.channel().queue_declare("bound", durable=True)
            channels: dict[str, BlockingChannel] = {}
            while not self.stopped.is_set():
                for kind, ask_for in (("declare", self._declare), ("bind", self._bind), ("consume", self._consume)):
                    channel = channels.get(kind)
                    if channel is None or not channel.is_open:
                        channel = channels[kind] = connection.channel()
                    try:
                        ask_for(channel)
                    except pika.exceptions.ChannelClosedByBroker as error:
                        self.refusals[kind] = f"{error.reply_code} {error.reply_text}"
            connection.close()
        except Exception as error:  # noqa: BLE001 - reported to the test
            self.fault = error

    def _declare(self, channel: BlockingChannel) -> None:
        channel.queue_declare(f"flood-{next(self._names)}", durable=True, arguments=NOTE)

    def _bind(self, channel: BlockingChannel) -> None:
        channel.queue_bind("bound", "amq.headers", arguments={**NOTE, "number": next(self._names)})

    def _consume(self, channel: BlockingChannel) -> None:
        channel.basic_consume("bound", lambda *_: None, arguments=NOTE)


class Honest:
    """A client that has begun work before the flood, and ends it meanwhile."""

    def __init__(self, url: str) -> None:
        self.connection = pika.BlockingConnection(pika.URLParameters(url))
        channel = self.connection.channel()
        for name in ("work", "done", "obsolete"):
            channel.queue_declare(name, durable=True)
        channel.confirm_delivery()
        for number in range(MESSAGES):
            channel.basic_publish("", "work", b"%d" % number, DURABLE)
        self.channel = self.connection.channel()
        self.tags = [_tag(self.channel) for _ in range(MESSAGES // 4)]
        self.committing, self.undoing = self._begun(), self._begun()

    def _begun(self) -> BlockingChannel:
        """Begin a transaction that moves messages."""
        channel = self.connection.channel()
        channel.tx_select()
        for _ in range(MESSAGES // 4):
            channel.basic_ack(_tag(channel))
            channel.basic_publish("", "done", b"moved", DURABLE)
        return channel

    def finish(self) -> None:
        """Acknowledge, commit, roll back, and delete."""
        for tag in self.tags:
            self.channel.basic_ack(tag)
        self.committing.tx_commit()
        self.undoing.tx_rollback()
        self.undoing.close()
        self.channel.queue_delete("obsolete")
        self.connection.close()


def _tag(channel: BlockingChannel) -> int:
    method, _, _ = channel.basic_get("work")
    assert method is not None
    return int(method.delivery_tag)


def status(broker: BrokerProcess) -> Any:
    return ask(broker.data_dir, "status")


def depths(broker: BrokerProcess) -> dict[str, int]:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    found = {name: channel.queue_declare(name, passive=True).method.message_count for name in ("work", "done")}
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="404"):
        channel.queue_declare("obsolete", passive=True)
    connection.close()
    return found


def survives_a_flood(broker: BrokerProcess, alarm: str) -> None:
    """Flood the broker, finish honest work meanwhile, and start again, after a clean stop and after a kill."""
    honest = Honest(broker.url)
    flood = Flood(broker)
    flood.start()
    wait_until(lambda: "declare" in flood.refusals or flood.fault, 120, "the end of the flood")
    assert flood.fault is None, broker.log()[-4000:]
    assert flood.refusals["declare"].startswith("506 ")
    assert f"low on {alarm}" in flood.refusals["declare"]
    wait_until(lambda: alarm in status(broker)["alarms"], 60, "the alarm, which a snapshot may just have ended")
    honest.finish()
    wait_until(lambda: flood.refusals.keys() >= {"declare", "bind"} or flood.fault, 60, "a refused binding")
    assert f"low on {alarm}" in flood.refusals["bind"]
    flood.stopped.set()
    flood.join(60)
    assert flood.fault is None, broker.log()[-4000:]
    left = {"work": MESSAGES // 2, "done": MESSAGES // 4}
    assert depths(broker) == left
    assert broker.terminate() == 0, broker.log()[-4000:]
    broker.start()
    assert depths(broker) == left
    broker.kill()
    broker.start()
    assert depths(broker) == left
    assert broker.terminate() == 0, broker.log()[-4000:]


def test_a_flood_of_declarations_leaves_room_on_the_disk_for_what_sets_free(tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    config.write_text(f"{JOURNAL}[disk]\nfree_limit = '20MiB'\n")
    with small_disk() as folder, BrokerProcess(folder, "--config", str(config)) as broker:
        survives_a_flood(broker, "disk")


def test_a_flood_of_declarations_leaves_room_in_memory_for_what_sets_free(tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    with BrokerProcess(tmp_path) as broker:
        base = status(broker)["memory"]["resident_bytes"]
        assert broker.terminate() == 0
    config.write_text(f"[memory]\nhigh_watermark = {base + 30 * MIB}\n")
    with BrokerProcess(tmp_path, "--config", str(config)) as broker:
        survives_a_flood(broker, "memory")
