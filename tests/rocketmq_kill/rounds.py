"""Rounds of gathered calls over both of RocketMQ's protocols, each ended by kill -9 of the broker.

A client writes many sends, half messages and decisions at once, so the broker reads them together and writes them in a
few records. Its log is written slowly, if strace is there for that, so most kills come while records are not on disk
yet. After each kill, what was answered must hold. Then everything is decided, and each message must be there as often
as its outcome says.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from escrowmq.client import connect
from escrowmq.journal.storage import LOCK_NAME
from escrowmq.wire.amqp091.table import FieldValue
from tests.broker import BrokerProcess
from tests.harness.rocketmq_calls import (
    COMMIT,
    ROLL_BACK,
    SEND,
    STORE,
    TOPIC,
    Answered,
    Asked,
    GrpcCalls,
    RemotingCalls,
)
from tests.harness.rocketmq_ledger import Ledger
from tests.harness.tracing import can_trace
from tests.interop.rocketmq.brokers import RocketmqPorts
from tests.interop.rocketmq.streams import Streams
from tests.kill.clients import Client
from tests.rocketmq_kill.wires import Wire

# Small files make segments, snapshots and compaction occur within a few rounds. The audit needs the whole history.
CONFIG: Final = '[journal]\nsegment_bytes = "1MiB"\nsnapshot_bytes = "1MiB"\nretain_bytes = "1000GB"\n'
QUEUES: Final = 4
_STORES: Final = 48
_SENDS: Final = 16
_LEFT: Final = 0.2
"""The share of half messages that are not decided before the kill."""
_CONTRARY: Final = {COMMIT: ROLL_BACK, ROLL_BACK: COMMIT}
_WRITE_MICROS: Final = 10_000
"""The time by which each write to the log is delayed."""


class SlowlyWriting(BrokerProcess):
    """A broker each of whose writes to its log takes a while."""

    @property
    def command(self) -> list[str]:
        delay = f"inject=pwritev,pwritev2:delay_enter={_WRITE_MICROS}"
        return ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=pwritev,pwritev2", "-e", delay, *super().command]

    def kill(self) -> None:
        """Kill the broker itself; strace ends with it."""
        if self.process.poll() is None:
            os.kill(int((self.data_dir / LOCK_NAME).read_text(encoding="ascii")), signal.SIGKILL)
        self.wait()


class Bursting:
    """Writes sends, half messages, and the decisions of the last half messages at once, and waits for the answers."""

    def __init__(self, wire: Wire, ledger: Ledger, prefix: str, rng: random.Random) -> None:
        """`prefix` begins the ids of this client's messages."""
        self.bursts = 0
        self._wire = wire
        self._ledger = ledger
        self._prefix = prefix
        self._rng = rng
        self._number = 0
        self._last: list[str] = []

    def work(self) -> None:
        ledger, rng = self._ledger, self._rng
        requests = [Asked(verb, self._ident()) for verb in [SEND] * _SENDS + [STORE] * _STORES]
        for ident in self._last:
            if rng.random() >= _LEFT:
                verb = COMMIT if rng.random() < 0.7 else ROLL_BACK
                requests += [Asked(verb, ident, ledger.stored[ident])] * (2 if rng.random() < 0.1 else 1)
        if rng.random() < 0.5:
            rng.shuffle(requests)  # the broker writes normal sends before a decision that follows them
        for request in requests:
            ledger.ask(request)
        self._wire.exchange(requests, ledger.answered)
        self._last = [request.ident for request in requests if request.verb == STORE]
        self.bursts += 1

    def _ident(self) -> str:
        self._number += 1
        return f"{self._prefix}{self._number:08d}"


def run_rounds(folder: Path, rounds: int, seed: int, report: Callable[[str], object] = len) -> int:
    """Run the rounds. Return the number of half messages. Raises AssertionError with round and seed for the first
    violated guarantee.
    """
    ports, rng, halves = RocketmqPorts(), random.Random(seed), 0
    config = folder / "broker.toml"
    config.write_text(ports.config + CONFIG, encoding="utf-8")
    makers: tuple[Callable[[], Wire], ...] = (
        lambda: Wire(ports.broker_port, RemotingCalls(QUEUES)),
        lambda: Wire(ports.grpc, GrpcCalls("shop")),
    )
    make = SlowlyWriting if can_trace() else BrokerProcess
    with make(folder, "--config", str(config), "--log-level", "info") as broker:
        with connect(broker.url) as link, link.channel() as channel:
            kind: dict[str, FieldValue] = {"x-partitions": QUEUES, "x-message-type": "mixed"}
            channel.exchange_declare(TOPIC, "x-partitioned", durable=True, arguments=kind)
        streams = Streams(broker, TOPIC, QUEUES)
        for number in range(rounds):
            ledgers = [Ledger() for _ in range(2 * len(makers))]
            pairs = list(zip([*makers, *makers], ledgers, strict=True))
            try:
                _load_and_kill(broker, pairs, number, rng)
                broker.start()
                _reckon(pairs, streams, rng)
            except AssertionError as error:
                raise AssertionError(f"round {number} of seed {seed}: {error}\n{broker.log()[-4000:]}") from error
            halves += sum(len(ledger.halves) for ledger in ledgers)
            answered = sum(len(ledger.sent) + len(ledger.stored) for ledger in ledgers)
            report(f"round {number + 1}/{rounds}: {answered} sends and half messages were answered")
    return halves


def _load_and_kill(
    broker: BrokerProcess, pairs: list[tuple[Callable[[], Wire], Ledger]], number: int, rng: random.Random
) -> None:
    wires = [make() for make, _ in pairs]
    bursting = [
        Bursting(wire, ledger, f"{number:04d}X{which}X", random.Random(rng.random()))
        for which, (wire, (_, ledger)) in enumerate(zip(wires, pairs, strict=True))
    ]
    clients = [Client(each.work) for each in bursting]
    for client in clients:
        client.start()
    begun, deadline = rng.randrange(2, 8), time.monotonic() + 30
    while any(each.bursts < begun for each in bursting) and time.monotonic() < deadline:
        threading.Event().wait(0.002)
    threading.Event().wait(rng.uniform(0.0, 0.05))  # the random moment of the kill
    broker.kill()
    for client in clients:
        client.stopped.set()
        client.join(30)
        assert not client.is_alive(), "a client hangs after the broker was killed"
        if client.error is not None:
            raise client.error
    for wire in wires:
        wire.close()


def _reckon(pairs: list[tuple[Callable[[], Wire], Ledger]], streams: Streams, rng: random.Random) -> None:
    """Compare what is there with what was promised; then send again, decide everything, and compare again."""
    found = streams.read()
    for which, (_, ledger) in enumerate(pairs):
        ledger.check_promises(_of(which, found))
    for make, ledger in pairs:
        wire = make()
        try:
            _settle(wire, ledger, rng)
        finally:
            wire.close()
    found += streams.read()
    for which, (_, ledger) in enumerate(pairs):
        ledger.check_outcomes(_of(which, found))
    assert len(found) == sum(len(_of(which, found)) for which in range(len(pairs)))


def _settle(wire: Wire, ledger: Ledger, rng: random.Random) -> None:
    again = [Asked(STORE, ident) for ident in ledger.halves]
    wire.exchange(again, ledger.answered)
    promised = sorted(ledger.decided)
    ends = []
    for ident in sorted(ledger.halves):
        verb = ledger.wanted.get(ident) or rng.choice((COMMIT, ROLL_BACK))
        ends.append(Asked(verb, ident, ledger.stored[ident]))
        ledger.ask(ends[-1])
    wire.exchange(ends, ledger.answered, all_answered=True)
    assert ledger.decided >= set(promised)
    contrary = [end._replace(verb=_CONTRARY[end.verb]) for end in ends]
    found: list[Answered] = []
    wire.exchange(contrary, found.append, all_answered=True)
    assert all(answer.fault for answer in found), "a decision was accepted that contradicts an earlier one"


def _of(which: int, found: Iterable[str]) -> list[str]:
    return [ident for ident in found if ident[4:7] == f"X{which}X"]
