"""Half messages over both of RocketMQ's protocols around take-overs. Some are left to the broker's checks."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from escrowmq.client import connect
from escrowmq.wire.amqp091.table import FieldValue
from tests.harness.rocketmq_calls import COMMIT, ROLL_BACK, SEND, STORE, TOPIC, Answered, Asked, Calls
from tests.harness.rocketmq_ledger import Ledger
from tests.interop.rocketmq.brokers import RocketmqPorts
from tests.interop.rocketmq.streams import Streams
from tests.replica_kill.roaming import PAUSE, Roaming
from tests.replicas import ReplicaBroker, ReplicaBrokers
from tests.rocketmq_kill.wires import Wire

QUEUES: Final = 4
CHECKS: Final = """[half_messages]
timeout_seconds = 1
check_interval_seconds = 1
checks = 1000
outcome_kept_seconds = "168h"
"""
"""The clocks of nodes differ by hours, which must not end the time for which outcomes stay known."""
_BUSY: Final = "the broker accepts no messages now"
_SENDS: Final = 4
_STORES: Final = 6
_LEFT: Final = 0.3
"""The share of half messages that are left to a check."""


class HalfWorker(Roaming):
    """Sends messages and half messages, decides most of the latter, and answers checks about the others.

    Args:
        brokers: The nodes.
        name: Begins the ids of its messages.
        seed: Of its decisions.
        port: Returns the port of its protocol.
        calls: Makes the client's side of a connection.
    """

    def __init__(
        self,
        brokers: ReplicaBrokers,
        name: str,
        seed: int,
        port: Callable[[ReplicaBroker], int],
        calls: Callable[[], Calls],
    ) -> None:
        super().__init__(brokers)
        self._name = name
        self._rng = random.Random(seed)
        self._port = port
        self._calls = calls
        self._number = 0
        self._ledger = Ledger()
        self._last: list[str] = []
        self.checks = 0

    def work(self, node: ReplicaBroker) -> None:
        wire = Wire(self._port(node), self._calls(), node.host)
        try:
            self._last = []
            while not self.stopped.is_set():
                self._burst(wire)
                self.stopped.wait(PAUSE)
        finally:
            wire.close()

    def _burst(self, wire: Wire) -> None:
        ledger, rng = self._ledger, self._rng
        requests = [Asked(verb, self._ident()) for verb in [SEND] * _SENDS + [STORE] * _STORES]
        decided = [ident for ident in self._last if rng.random() >= _LEFT]
        checked = {check.ident: check.number for check in wire.checked if check.ident in ledger.halves}
        wire.checked.clear()
        self.checks += len(checked)
        numbers = {**{ident: ledger.stored[ident] for ident in decided}, **checked}
        for ident, number in numbers.items():
            verb = ledger.wanted.get(ident) or (COMMIT if rng.random() < 0.7 else ROLL_BACK)
            requests.append(Asked(verb, ident, number))
        for request in requests:
            ledger.ask(request)
        wire.exchange(requests, self._answered)
        self._last = [request.ident for request in requests if request.verb == STORE]
        self.done += 1

    def _answered(self, answer: Answered) -> None:
        """Note an answer. Raises ConnectionError if the leader takes nothing now, because its disk is full."""
        if _BUSY in answer.fault:
            raise ConnectionError(answer.fault)
        self._ledger.answered(answer)

    def _ident(self) -> str:
        self._number += 1
        return f"{self._name}{self._number:08d}"

    def finish(self, leader: ReplicaBroker) -> None:
        """Store all half messages again, which changes nothing, and decide them."""
        ledger, wire = self._ledger, Wire(self._port(leader), self._calls(), leader.host)
        wire.exchange([Asked(STORE, ident) for ident in sorted(ledger.halves)], ledger.answered)
        ends = []
        for ident in sorted(ledger.halves):
            ends.append(Asked(ledger.wanted.get(ident) or ROLL_BACK, ident, ledger.stored[ident]))
            ledger.ask(ends[-1])
        wire.exchange(ends, ledger.answered, all_answered=True)
        wire.close()

    def judge(self, leader: ReplicaBroker) -> None:
        found = [ident for ident in Streams(leader, TOPIC, QUEUES).read() if ident.startswith(self._name)]
        self._ledger.check_outcomes(found)


def declare_topic(leader: ReplicaBroker) -> None:
    """Declare the topic of all half messages."""
    with connect(leader.url) as link, link.channel() as channel:
        kind: dict[str, FieldValue] = {"x-partitions": QUEUES, "x-message-type": "mixed"}
        channel.exchange_declare(TOPIC, "x-partitioned", durable=True, arguments=kind)


def configured(ports: RocketmqPorts, host: str) -> str:
    """Return the sections of a node's configuration."""
    return ports.config.replace("127.0.0.1", host) + CHECKS
