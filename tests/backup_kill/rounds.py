"""Rounds of load with backups that are killed, beside kills of the broker and of the process that keeps a copy up."""

from __future__ import annotations

import json
import math
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from escrowmq.admin.socket.client import AdminError, ask
from escrowmq.client import Error, connect
from escrowmq.wire.amqp091.table import FieldValue
from tests.backup_kill.noted import PAIR, Noted, Preparing
from tests.broker import BrokerProcess, wait_until
from tests.interop.rocketmq.brokers import RocketmqPorts
from tests.kill.clients import Acking, Client, Confirming, Moving, Transacting, declare, drain, feed
from tests.kill.rounds import CONFIG, reckon
from tests.pipeline.direct import audited
from tests.unit.sources import ROOT

TOPIC, PARTITIONS = "halves", 2
STEPS = ("backup", "kill of a backup", "kill of the broker", "loss of the machine", "kill of the follower")
KILLS = ("kill of the broker", "loss of the machine")
"""The rounds in which the broker is killed."""
_STEP = 1_000_000  # keeps the message numbers of different rounds apart
_PATIENT = "[half_messages]\ntimeout_seconds = 3600\n"


class Rounds:
    """Backs one broker up again and again, under load, into one directory, and restores each backup."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.backup = folder / "backup"
        self.rng = random.Random(seed)
        self.ports = RocketmqPorts()
        config = folder / "broker.toml"
        config.write_text(CONFIG + self.ports.config + _PATIENT, encoding="utf-8")
        self.broker = BrokerProcess(folder, "--config", str(config), "--log-level", "info")

    def run(self, rounds: int, report: Callable[[str], object] = len) -> None:
        """Run the rounds. Raises AssertionError with the round for the first violated guarantee."""
        with self.broker:
            declare(self.broker.url)
            with connect(self.broker.url) as link, link.channel() as channel:
                kind: dict[str, FieldValue] = {"x-partitions": PARTITIONS, "x-message-type": "transaction"}
                channel.exchange_declare(TOPIC, "x-partitioned", durable=True, arguments=kind)
            for number in range(rounds):
                step = STEPS[number % len(STEPS)]
                try:
                    text = self._round(number, step)
                except AssertionError as error:
                    raise AssertionError(f"round {number}, {step}: {error}\n{self.broker.log()[-4000:]}") from error
                report(f"round {number + 1}/{rounds}, {step}: {text}; restored, audited, counted")

    def _round(self, number: int, step: str) -> str:
        ledger, first = Noted(), number * _STEP
        with _halves(self.ports, self.folder / f"halves-{number}.txt", number) as halves:
            preparing = self._loaded(ledger, first, step)
            when = json.loads((self.backup / "backup.json").read_text(encoding="utf-8"))["as_of_us"] / 1e6
        self._judge(ledger, preparing, halves, when)
        if self.broker.process.poll() is not None:
            self.broker.start()
        self._drain_everything()
        confirmed = len(ledger.before(when).confirmed)
        return f"{confirmed} of {len(ledger.confirmed)} confirmed messages before the backup"

    def _loaded(self, ledger: Noted, first: int, step: str) -> Preparing:
        """Load the broker, and make backups meanwhile."""
        url, rng = self.broker.url, self.rng
        feed(url, ledger, first, 1000)
        single = Confirming(url, "single", first, ledger.confirmed.add)
        plain = Confirming(url, "plain", first, ledger.kept.add)
        preparing = Preparing(url, first)
        workers = (
            *(single, plain, preparing, Transacting(url, ledger, first, random.Random(rng.random()))),
            *(Moving(url, ledger, random.Random(rng.random())), Acking(url, ledger, random.Random(rng.random()))),
        )
        clients = [Client(worker.work) for worker in workers]
        compacting = Client(self._compact)
        for client in (*clients, compacting):
            client.start()
        try:
            threading.Event().wait(rng.uniform(0.1, 0.6))  # a random amount of load
            self._do(step)
        finally:
            for client in (*clients, compacting):
                client.stopped.set()
            for client in (*clients, compacting):
                client.join(60)
        lost = (OSError, Error) if step in KILLS else ()
        for client in clients:
            assert not client.is_alive(), "a client hangs"
            if client.error is not None and not isinstance(client.error, lost):
                raise client.error
        ledger.sent = single.next
        return preparing

    def _compact(self) -> None:
        try:
            ask(self.broker.data_dir, "journal.compact")
        except AdminError:
            threading.Event().wait(0.05)

    def _do(self, step: str) -> None:
        rng = self.rng
        if step == "backup":
            self._back_up()
        elif step == "kill of a backup":
            with self._process() as process:
                threading.Event().wait(rng.uniform(0.2, 0.8))
                process.kill()
            self._back_up()
        elif step == "kill of the broker":
            with self._process() as process:
                threading.Event().wait(rng.uniform(0.2, 0.8))
                self.broker.kill()
                assert process.wait(60) in (0, 1)
            self.broker.start()
            self._back_up()
        else:
            with self._process("--follow", "--interval", "20ms") as process:
                self._wait_for(process)
                threading.Event().wait(rng.uniform(0.1, 0.8))
                if step == "loss of the machine":
                    self.broker.kill()
                process.kill()
                process.wait()

    @contextmanager
    def _process(self, *options: str) -> Iterator[subprocess.Popen[str]]:
        command = [
            sys.executable,
            "-m",
            "escrowmq",
            "backup",
            str(self.backup),
            "--data-dir",
            str(self.broker.data_dir),
        ]
        with subprocess.Popen(
            [*command, *options], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    @staticmethod
    def _wait_for(follower: subprocess.Popen[str]) -> None:
        assert follower.stderr is not None
        line = follower.stderr.readline()
        assert line.startswith("following"), line

    def _back_up(self) -> None:
        with self._process() as process:
            _, told = process.communicate(timeout=120)
            assert process.returncode == 0, told

    def _judge(self, ledger: Noted, preparing: Preparing, halves: Halves, when: float) -> None:
        """Restore the backup, audit it, start a broker on it, and count."""
        place = self.folder / "restored"
        command = [sys.executable, "-m", "escrowmq", "restore", str(self.backup), "--data-dir", str(place / "data")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        found = audited(place / "data")
        assert found.wrong == [], f"the audit of the backup: {found.wrong[:5]}"
        with BrokerProcess(place) as restored:
            data = restored.data_dir
            decide(data)
            halves.check(delivered(restored.url), pending(data), when)
            preparing.check({queue: drain(restored.url, queue) for queue in PAIR}, when)
            reckon(restored.url, ledger.before(when))
            assert restored.terminate() == 0, restored.log()[-4000:]
        found = audited(place / "data")
        assert found.wrong == [], f"the audit after the restored broker: {found.wrong[:5]}"
        shutil.rmtree(place)

    def _drain_everything(self) -> None:
        wait_until(lambda: self.broker.process.poll() is None)
        decide(self.broker.data_dir)
        for queue in ("single", "left", "middle", "right", "work", "done", "plain", *PAIR):
            drain(self.broker.url, queue)


def decide(data_dir: Path) -> None:
    """Commit every branch that is in doubt."""
    for branch in ask(data_dir, "tx.list"):
        if branch["state"] == "prepared":
            ask(data_dir, "tx.commit", xid=branch["xid"], why="the test needs all messages")


def pending(data_dir: Path) -> set[str]:
    """Return the ids of half messages without a decision."""
    return {row["message_id"] for row in ask(data_dir, "half.list") if row["state"] == "pending"}


def delivered(url: str) -> list[str]:
    """Return the half messages that were committed, each as often as it is in the topic."""
    found: list[str] = []
    with connect(url) as link, link.channel() as channel:
        channel.basic_qos(prefetch_count=1000)
        for partition in range(PARTITIONS):
            stream = f"{TOPIC}-{partition}"
            left = channel.queue_declare(stream, passive=True).method.message_count
            if not left:
                continue
            for method, _, body in channel.consume(stream, arguments={"x-stream-offset": "first"}):
                assert method is not None
                assert body is not None
                channel.basic_ack(method.delivery_tag)
                found.append(body.decode())
                left -= 1
                if not left:
                    break
            channel.cancel()
    return found


class Halves:
    """What a process of `halves.py` has said."""

    def __init__(self, path: Path, name: str) -> None:
        self._path = path
        self._name = name

    def said(self, step: str, when: float = math.inf) -> dict[str, str]:
        """Return the messages, with their ids, of which a step was said before a time."""
        *lines, _ = self._path.read_text(encoding="utf-8").split("\n")  # the last line may be cut off
        words = [line.split() for line in lines]
        return {ident: message_id for each, ident, message_id, at in words if each == step and float(at) < when}

    def check(self, there: list[str], undecided: set[str], when: float) -> None:
        """Check the topic and the ids of half messages without a decision. Raises AssertionError."""
        mine = [ident for ident in there if ident.startswith(self._name)]
        assert len(set(mine)) == len(mine), "a half message was committed twice"
        lost = self.said("committed", when).keys() - set(mine)
        assert not lost, f"{len(lost)} committed half messages are lost; one is {min(lost)}"
        rolling = self.said("rolling").keys()
        wrong = rolling & set(mine)
        assert not wrong, f"{len(wrong)} half messages were rolled back, and are there; one is {min(wrong)}"
        stored = self.said("stored", when)
        gone = {ident for ident in stored.keys() - rolling - set(mine) if stored[ident] not in undecided}
        assert not gone, f"{len(gone)} stored half messages are lost; one is {min(gone)}"


@contextmanager
def _halves(ports: RocketmqPorts, path: Path, number: int) -> Iterator[Halves]:
    name = f"r{number}"
    command = [sys.executable, "-m", "tests.backup_kill.halves", str(ports.grpc), TOPIC, f"{name}x"]
    with (
        path.open("wb") as output,
        subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL, cwd=ROOT) as process,
    ):
        try:
            wait_until(lambda: path.stat().st_size, 60, "a half message")
            yield Halves(path, f"{name}x")
        finally:
            process.send_signal(signal.SIGKILL)
