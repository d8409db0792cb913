"""Rounds of faults against three brokers on three nodes of an engine, while clients work."""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pika
from click.testing import CliRunner

from escrowmq.cli.replica import replica
from tests.broker import wait_until
from tests.engines.nodes import EngineNodes
from tests.replica_kill.clients import PATIENCE, QUEUE, ConfirmedProducer, TakingConsumer, TransactionalProducer
from tests.replica_kill.judge import Known, compare, judge
from tests.replicas import ReplicaBroker, ReplicaBrokers, journal_files

FAULTS = {
    "kill the leader": 6,
    "freeze the leader": 3,
    "kill a standby": 1,
    "hand over": 1,
    "stop the leader": 1,
    "kill a node of the engine": 2,
    "freeze a node of the engine": 1,
}
FROZEN_SECONDS = 4.0
"""Longer than the lease, so that another node leads when the frozen one goes on."""


class Rounds:
    """Three brokers, three nodes of an engine, and clients. All randomness is that of `seed`."""

    def __init__(self, folder: Path, nodes: EngineNodes, name: str, seed: int) -> None:
        self._rng = random.Random(seed)
        self._nodes = nodes
        self.brokers = ReplicaBrokers(folder, nodes.url(name))
        self._producers = [ConfirmedProducer(self.brokers, f"p{index}") for index in range(2)]
        self._transactions = TransactionalProducer(self.brokers, "t")
        self._consumer = TakingConsumer(self.brokers)
        self.gaps: list[float] = []
        """Seconds from each fault until something was confirmed again."""

    def run(self, rounds: int, report: Callable[[str], None] = print) -> list[Path]:
        """Run rounds, judge what is left, and return the data directories. Fails if something is wrong."""
        with self.brokers:
            self.brokers.leader()
            with contextlib.ExitStack() as stack:
                for worker in (*self._producers, self._transactions, self._consumer):
                    stack.enter_context(worker)
                self._wait_for_work()
                for number in range(rounds):
                    fault = self._rng.choices(list(FAULTS), list(FAULTS.values()))[0]
                    self._round(fault)
                    report(f"round {number + 1}: {fault}; confirmed again after {self.gaps[-1]:.1f} s")
            self._judge()
        return [node.data_dir for node in self.brokers.nodes]

    def _confirmed(self) -> int:
        return sum(len(producer.confirmed) for producer in self._producers)

    def _wait_for_work(self) -> None:
        confirmed, committed = self._confirmed(), len(self._transactions.committed)
        taken = len(self._consumer.taken)
        wait_until(
            lambda: (
                self._confirmed() >= confirmed + 10
                and len(self._transactions.committed) > committed
                and len(self._consumer.taken) > taken
            ),
            PATIENCE,
            "clients to go on\n" + "\n".join(node.log()[-1500:] for node in self.brokers.nodes),
        )

    def _round(self, fault: str) -> None:
        with self._fault(fault):
            began, confirmed = time.monotonic(), self._confirmed()
            wait_until(lambda: self._confirmed() > confirmed, PATIENCE, f"a confirm after: {fault}")
            self.gaps.append(time.monotonic() - began)
        for node in self.brokers.nodes:
            if node.process.poll() is not None:
                node.begin()
        self._nodes.start()
        self._wait_for_work()

    @contextlib.contextmanager
    def _fault(self, fault: str) -> Iterator[None]:
        leader = self.brokers.leader()
        standby = self._rng.choice([node for node in self.brokers.nodes if node is not leader])
        engine = self._rng.randrange(self._nodes.count)
        match fault:
            case "kill the leader":
                leader.kill()
            case "kill a standby":
                standby.kill()
            case "stop the leader":
                leader.terminate()
            case "hand over":
                done = CliRunner().invoke(replica, ["handover", "--data-dir", str(leader.data_dir)])
                assert done.exit_code == 0, done.output
            case "freeze the leader":
                frozen = time.monotonic()
                leader.signal(signal.SIGSTOP)
                yield
                wait_until(lambda: time.monotonic() - frozen > FROZEN_SECONDS, PATIENCE, "the lease to end")
                leader.signal(signal.SIGCONT)
                return
            case "kill a node of the engine":
                self._nodes.kill(engine)
            case "freeze a node of the engine":
                self._nodes.freeze(engine)
                yield
                self._nodes.thaw(engine)
                return
        yield

    def _judge(self) -> None:
        leader = self.brokers.leader()
        judge(
            Known(
                confirmed=[body for producer in self._producers for body in producer.confirmed],
                committed=self._transactions.committed,
                begun=self._transactions.begun,
                taken=self._consumer.taken,
                uncertain=self._consumer.uncertain,
                left=contents(leader),
            )
        )
        self.brokers.followed()
        for node in self.brokers.nodes:
            node.kill()
        compare([journal_files(node.data_dir) for node in self.brokers.nodes])


def contents(broker: ReplicaBroker) -> list[bytes]:
    """Return the bodies of all messages in the queue, which keeps them."""
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port))
    channel = connection.channel()
    found = []
    while True:
        method, _, body = channel.basic_get(QUEUE)
        if method is None or body is None:
            break
        found.append(body)
    connection.close()
    return found
