"""Rounds of faults against three brokers on three nodes of an engine, while clients of all protocols work."""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pika
from click.testing import CliRunner

from escrowmq.cli.replica import replica
from tests.broker import wait_until
from tests.engines.nodes import EngineNodes
from tests.harness.rocketmq_calls import GrpcCalls, RemotingCalls
from tests.replica_kill import clock, network
from tests.replica_kill.branches import BranchWorker, ManagerWorker
from tests.replica_kill.clients import PATIENCE, QUEUE, ConfirmedProducer, TakingConsumer, TransactionalProducer
from tests.replica_kill.exactly_once import OnceReceiver, OnceSender
from tests.replica_kill.halves import QUEUES, HalfWorker, declare_topic
from tests.replica_kill.judge import Known, compare, judge
from tests.replica_kill.nodes import Node, Nodes
from tests.replica_kill.roaming import Roaming
from tests.replicas import ReplicaBroker, journal_files

FAULTS: Final = {
    "kill the leader": 4,
    "freeze the leader": 3,
    "kill a standby": 1,
    "hand over": 1,
    "stop the leader": 1,
    "kill a node of the engine": 2,
    "freeze a node of the engine": 1,
}
CLOCK_FAULTS: Final = {"set the leader's clock": 1, "set a standby's clock": 1}
NETWORK_FAULTS: Final = {
    "cut the way from the leader to the engine": 2,
    "cut the way from the engine to the leader": 2,
    "cut the way from the engine to a standby": 1,
    "fill the disk of n0": 1,
}
FROZEN_SECONDS: Final = 4.0
"""Longer than the lease, so that another node leads when the frozen one goes on."""


def hand_over(leader: Node) -> None:
    """Let another node lead, as soon as one has reported that it follows."""
    arguments = ["handover", "--data-dir", str(leader.data_dir)]
    wait_until(lambda: CliRunner().invoke(replica, arguments).exit_code == 0, PATIENCE, "the hand-over")


class Rounds:
    """Three brokers, three nodes of an engine, and clients. All randomness is that of `seed`."""

    def __init__(
        self, folder: Path, nodes: EngineNodes, name: str, seed: int, net: network.Network | None = None
    ) -> None:
        self._rng = random.Random(seed)
        self._nodes = nodes
        self._net = net
        self.brokers = Nodes(folder, nodes.url(name), net)
        self._producers = [ConfirmedProducer(self.brokers, f"p{index}") for index in range(2)]
        self._transactions = TransactionalProducer(self.brokers, "t")
        self._consumer = TakingConsumer(self.brokers)
        sender = OnceSender(self.brokers, folder)
        self._roaming: list[Roaming] = [
            BranchWorker(self.brokers, seed),
            ManagerWorker(self.brokers, folder),
            sender,
            OnceReceiver(self.brokers, folder, sender),
            HalfWorker(self.brokers, "R", seed, self._remoting, lambda: RemotingCalls(QUEUES)),
            HalfWorker(self.brokers, "G", seed + 1, self._grpc, lambda: GrpcCalls("shop")),
        ]
        self._deck: list[str] = []
        self.gaps: list[float] = []
        """Seconds from each fault until something was confirmed again."""

    def _node(self, broker: ReplicaBroker) -> Node:
        return next(node for node in self.brokers.placed if node is broker)

    def _remoting(self, broker: ReplicaBroker) -> int:
        return self._node(broker).rocketmq.broker_port

    def _grpc(self, broker: ReplicaBroker) -> int:
        return self._node(broker).rocketmq.grpc

    def run(self, rounds: int, report: Callable[[str], None] = print) -> list[Path]:
        """Run rounds, judge what is left, and return the data directories. Fails if something is wrong."""
        for why in filter(None, (clock.why_not(), "" if self._net is not None else network.why_not())):
            report(f"some faults are left out: {why}")
        with self.brokers:
            declare_topic(self.brokers.leader())
            with contextlib.ExitStack() as stack:
                for worker in (*self._producers, self._transactions, self._consumer):
                    stack.enter_context(worker)
                for roaming in self._roaming:
                    stack.enter_context(roaming)
                self._wait_for_work()
                for number in range(rounds):
                    fault = self._next_fault()
                    began = time.monotonic()
                    self._round(fault)
                    took = time.monotonic() - began
                    report(f"round {number + 1}: {fault}; confirmed again after {self.gaps[-1]:.1f} s of {took:.1f} s")
            self._judge(report)
        return [node.data_dir for node in self.brokers.nodes]

    def _next_fault(self) -> str:
        if not self._deck:
            self._deck = shuffled(self._rng, clocks=not clock.why_not(), net=self._net is not None)
        return self._deck.pop()

    def _confirmed(self) -> int:
        return sum(len(producer.confirmed) for producer in self._producers)

    def _wait_for_work(self) -> None:
        confirmed, committed = self._confirmed(), len(self._transactions.committed)
        taken = len(self._consumer.taken)
        done = [worker.done for worker in self._roaming]

        def all_worked() -> bool:
            for worker in self._roaming:
                worker.check()
            return (
                self._confirmed() >= confirmed + 10
                and len(self._transactions.committed) > committed
                and len(self._consumer.taken) > taken
                and all(worker.done > before for worker, before in zip(self._roaming, done, strict=True))
            )

        try:
            wait_until(all_worked, PATIENCE, "clients to go on")
        except AssertionError as error:
            stuck = [
                type(worker).__name__
                for worker, before in zip(self._roaming, done, strict=True)
                if worker.done == before
            ]
            raise AssertionError(f"{error}; stuck: {stuck}\n{self._logs()}") from error

    def _logs(self) -> str:
        return "\n".join(node.log()[-1500:] for node in self.brokers.nodes)

    def _round(self, fault: str) -> None:
        def confirmed_again() -> bool:
            self._producers[0].leave_silent()  # the others stay with a frozen leader until it goes on
            return self._confirmed() > confirmed

        with self._fault(fault):
            began, confirmed = time.monotonic(), self._confirmed()
            wait_until(confirmed_again, PATIENCE, f"a confirm after: {fault}\n{self._logs()}")
            self.gaps.append(time.monotonic() - began)
        for node in self.brokers.nodes:
            if node.process.poll() is not None:
                node.begin()
        self._nodes.start()
        self._wait_for_work()

    @contextlib.contextmanager
    def _fault(self, fault: str) -> Iterator[None]:
        leader = self._node(self.brokers.leader())
        standby = self._rng.choice([node for node in self.brokers.placed if node is not leader])
        engine = self._rng.randrange(self._nodes.count)
        match fault:
            case "kill the leader":
                leader.kill()
            case "kill a standby":
                standby.kill()
            case "stop the leader":
                leader.terminate()
            case "hand over":
                hand_over(leader)
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
            case "set the leader's clock" | "set a standby's clock":
                node = leader if "leader" in fault else standby
                assert node.clock is not None
                node.clock.set(self._rng.choice(clock.SHIFTS))
            case "fill the disk of n0":
                with self.brokers.full_disk():
                    if leader is self.brokers.placed[0]:
                        self.brokers.leader(but=leader)
                    yield
                return
            case _:
                yield from self._cut(fault, leader, standby)
                return
        yield

    def _cut(self, fault: str, leader: Node, standby: Node) -> Iterator[None]:
        """Cut the network in one direction. If it is that of the leader, another node leads before the cut ends. The
        clients of the leader wait meanwhile, as long as they have no timeouts.
        """
        assert self._net is not None
        node = standby if "standby" in fault else leader
        with self._net.cut(self.brokers.placed.index(node), outgoing="to the engine" in fault):
            if node is not leader:
                yield
                return
            self.brokers.leader(but=leader)
        yield

    def _judge(self, report: Callable[[str], None]) -> None:
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
        for worker in self._roaming:
            worker.finish(leader)
            worker.judge(leader)
        checks = sum(worker.checks for worker in self._roaming if isinstance(worker, HalfWorker))
        pieces = ", ".join(f"{type(worker).__name__} {worker.done}" for worker in self._roaming)
        report(f"{self._confirmed()} confirms, {len(self._transactions.committed)} commits, {pieces}, {checks} checks")
        self.brokers.followed()
        for node in self.brokers.nodes:
            node.kill()
        compare([journal_files(node.data_dir) for node in self.brokers.nodes])


def shuffled(rng: random.Random, *, clocks: bool, net: bool) -> list[str]:
    """Return each fault that can be made, as often as its weight says. The last one comes first."""
    faults = {**FAULTS, **(CLOCK_FAULTS if clocks else {}), **(NETWORK_FAULTS if net else {})}
    found = [fault for fault, weight in faults.items() for _ in range(weight)]
    rng.shuffle(found)
    return found


def contents(broker: ReplicaBroker) -> list[bytes]:
    """Return the bodies of all messages in the queue, which keeps them."""
    connection = pika.BlockingConnection(pika.ConnectionParameters(broker.host, broker.port))
    channel = connection.channel()
    found = []
    while True:
        method, _, body = channel.basic_get(QUEUE)
        if method is None or body is None:
            break
        found.append(body)
    connection.close()
    return found
