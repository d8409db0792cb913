"""A long load on a broker: hostile clients, and honest ones whose messages are counted after each period."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import escrowmq.client as mq
from escrowmq.admin.socket.client import ask
from escrowmq.client import Properties
from tests.broker import BrokerProcess
from tests.certificates import Authority
from tests.kill.clients import Acking, Client, Confirming, Moving, Transacting, declare, feed
from tests.kill.ledger import Ledger
from tests.kill.rounds import reckon
from tests.soak.hostile import Hostile, Target

# All history is kept for the audit. Little memory for queues and small snapshots keep paging and compaction busy.
CONFIG = """
[listen]
tls_address = "127.0.0.1:0"
[tls]
certificate = "{certificate}"
key = "{key}"
[limits]
unauthenticated_connections = 100
unauthenticated_seconds = 5
[memory]
queue_resident_bytes = "256KiB"
[journal]
segment_bytes = "16MiB"
snapshot_bytes = "8MiB"
retain_bytes = "1000GB"
"""
WARM_UP = 0.2
"""The part of the periods after which memory must be flat."""
SLACK = 0.10
SLACK_BYTES = 16 << 20
_STEP = 1_000_000  # keeps the message numbers of different periods apart
_PAUSE = 0.4  # between the pieces of work of an honest client, which leaves the broker time for the others
_DURABLE = Properties(delivery_mode=2)


class Deciding:
    """Moves messages between two queues in distributed transactions, commits most, and leaves some to recovery."""

    def __init__(self, url: str, period: int, rng: random.Random) -> None:
        self.connection = mq.connect(url, timeout=60)
        self.channel = self.connection.channel()
        self.committed = 0
        self._period = period
        self._rng = rng
        self._numbers = iter(range(1 << 30))
        for queue in ("xa-from", "xa-to"):
            self.channel.queue_declare(queue, durable=True)
            self.channel.queue_purge(queue)

    def work(self) -> None:
        number = next(self._numbers)
        self.channel.basic_publish("", "xa-from", b"%d" % number, _DURABLE)
        xid = mq.xid(1, b"soak", b"%d.%d" % (self._period, number))
        self.connection.tpc_begin(xid)
        method, _, body = self.channel.basic_get("xa-from")
        if method is not None and body is not None:
            self.channel.basic_publish("", "xa-to", body, _DURABLE)
            self.channel.basic_ack(method.delivery_tag)
        if self.connection.tpc_prepare():
            if self._rng.random() < 0.8:
                self.connection.tpc_commit()
                self.committed += 1
            else:
                self.connection.tpc_rollback()

    def check(self) -> None:
        """Each message is in exactly one of the two queues."""
        found = self.channel.message_count("xa-to")
        assert found == self.committed, f"{self.committed} branches were committed, and {found} messages moved"


class Soak:
    """Runs periods of load on one broker. Raises AssertionError for the first violated guarantee."""

    def __init__(self, folder: Path, *, seed: int, size: int, report: Callable[[str], object]) -> None:
        self.data_dir = folder / "data"
        self.resident: list[int] = []
        """The broker's memory in bytes after each period."""
        self._folder = folder
        self._rng = random.Random(seed)
        self._size = size
        self._report = report
        self._confirmed = 0

    def run(self, seconds: float, period: float) -> None:
        """Load the broker for `seconds`, counted in periods. Then it stops cleanly, and memory must have been flat."""
        certificate, key = Authority(self._folder).issue("localhost")
        config = self._folder / "escrowmq.toml"
        config.write_text(CONFIG.format(certificate=certificate, key=key), encoding="utf-8")
        end = time.monotonic() + seconds
        with BrokerProcess(self._folder, "--config", str(config)) as broker:
            declare(broker.url)
            with self._hostile(broker) as hostile:
                number = 0
                while time.monotonic() < end or number < 2:
                    self._period(broker, number, period)
                    number += 1
                    self._report(
                        f"period {number}: {self._confirmed} confirmed so far, "
                        f"{self.resident[-1] / 2**20:.0f} MiB, {sum(hostile.attacks.values())} attacks"
                    )
            missing = [name for name, times in hostile.attacks.items() if not times]
            assert seconds < period * 2 or not missing, f"attacks that never succeeded: {missing}"
            assert broker.terminate() == 0, broker.log()[-4000:]
        self.check_memory()

    def check_memory(self) -> None:
        """FAIR-2: memory is flat after the first periods."""
        level = self.resident[int(len(self.resident) * WARM_UP) :]
        early, late = (max(level[: len(level) // 2 or 1]), max(level[len(level) // 2 :]))
        assert late <= early * (1 + SLACK) + SLACK_BYTES, f"memory has grown: {[each >> 20 for each in level]} MiB"

    @contextmanager
    def _hostile(self, broker: BrokerProcess) -> Iterator[Hostile]:
        (url,) = [url for url in ask(broker.data_dir, "status")["listeners"] if url.startswith("amqps://")]
        target = Target(broker.url, int(url.rpartition(":")[2]), random.Random(self._rng.random()), self._size)
        hostile = Hostile(target)
        hostile.start()
        try:
            yield hostile
        finally:
            target.stopped.set()
            hostile.join(120)

    def _period(self, broker: BrokerProcess, number: int, seconds: float) -> None:
        url, ledger, first = broker.url, Ledger(), number * _STEP
        feed(url, ledger, first, 2000)
        rngs = [random.Random(self._rng.random()) for _ in range(4)]
        single = Confirming(url, "single", first, ledger.confirmed.add)
        plain = Confirming(url, "plain", first, ledger.kept.add)
        deciding = Deciding(url, number, rngs[3])
        workers = (
            *(single, plain, deciding, Transacting(url, ledger, first, rngs[0])),
            *(Moving(url, ledger, rngs[1]), Acking(url, ledger, rngs[2])),
        )
        clients = [Client(_paced(worker.work)) for worker in workers]
        for client in clients:
            client.start()
        threading.Event().wait(seconds)
        for client in clients:
            client.stopped.set()
        for client in clients:
            client.join(120)
            assert not client.is_alive(), f"an honest client hangs\n{broker.log()[-4000:]}"
            if client.error is not None:
                raise client.error
            assert client.lost is None, f"an honest client was disconnected: {client.lost!r}\n{broker.log()[-4000:]}"
        deciding.check()
        for worker in workers:
            worker.channel.connection.close()
        ledger.sent = single.next
        reckon(url, ledger)
        self._confirmed += len(ledger.confirmed) + len(ledger.kept)
        self.resident.append(ask(broker.data_dir, "status")["memory"]["resident_bytes"])


def _paced(work: Callable[[], None]) -> Callable[[], None]:
    pause = threading.Event()

    def paced() -> None:
        work()
        pause.wait(_PAUSE)

    return paced


def audit(data_dir: Path, folder: Path) -> None:
    """Judge the whole history by an audit with Spark. Raises AssertionError if it finds a violation."""
    command = [sys.executable, "-m", "escrowmq", "audit", str(data_dir), "--out", str(folder), "--quiet", "--no-nice"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-4000:]}"
