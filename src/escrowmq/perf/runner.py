"""A whole run: declare, connect, load, verify, delete."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from struct import unpack_from

from escrowmq.perf import frames
from escrowmq.perf.block import PublishBlock
from escrowmq.perf.branches import BranchPublisher
from escrowmq.perf.connection import Connection
from escrowmq.perf.consumer import Consumer
from escrowmq.perf.errors import PerfError
from escrowmq.perf.loop import Limits, Loop, Sample
from escrowmq.perf.pace import SECOND, Pace
from escrowmq.perf.producer import Producer
from escrowmq.perf.publisher import ConfirmingPublisher, Publisher, TransactingPublisher
from escrowmq.perf.totals import Totals
from escrowmq.perf.url import Target
from escrowmq.perf.workload import Workload

_CALL_TIMEOUT = 20.0
_DELETE_TIMEOUT = 120.0
"""A broker may need long to delete a queue of millions."""
_SETTLE_TIMEOUT = 30.0


@dataclass(slots=True)
class Outcome:
    """What a run has measured."""

    workload: Workload
    product: str
    version: str
    totals: Totals
    expected: int
    seconds: float = 0.0
    """From the first publish (or consume) to the end."""
    started: int = 0
    cpu_seconds: float = 0.0
    """What the tool itself used, in user and system time."""
    blocked_seconds: float = 0.0
    interrupted: bool = False
    """Ctrl-C ended it; nothing was verified."""
    series: list[Sample] = field(default_factory=list)


def run(
    target: Target,
    workload: Workload,
    deadline: float,
    stall: float,
    on_sample: Callable[[Sample, str | None, Totals], None],
    sample_every: float,
) -> Outcome:
    """Load the broker. Raises PerfError when it cannot be reached, closes, stalls, or loses or repeats messages."""
    with Connection(target, "escrowmq perf control", _CALL_TIMEOUT) as control:
        control.call(1, frames.channel_open(1), frames.CHANNEL_OPEN_OK)
        load = Load(control, target, workload)
        try:
            return load.run(deadline, stall, on_sample, sample_every)
        finally:
            load.close()


class Load:
    """The queues, connections and peers of one run."""

    def __init__(self, control: Connection, target: Target, workload: Workload) -> None:
        self._control = control
        self._target = target
        self._workload = workload
        self._totals = Totals()
        self._connections: list[Connection] = []
        self._declared: list[str] = []
        self._exchange = ""
        self._interrupted = False
        base = workload.queue or f"perf-{secrets.token_hex(6)}"
        numbered = workload.queue is None or workload.queue_count > 1
        self.queues = [f"{base}-{i:04d}" if numbered else base for i in range(workload.queue_count)]

    def run(
        self,
        deadline: float,
        stall: float,
        on_sample: Callable[[Sample, str | None, Totals], None],
        sample_every: float,
    ) -> Outcome:
        """Declare, load, verify."""
        workload = self._workload
        totals = self._totals
        backlog = self._declare()
        producers = self._producers()
        consumers = self._consumers()
        outcome = Outcome(workload, self._control.product, self._control.version, totals, 0)

        def sampled(sample: Sample, blocked: str | None) -> None:
            outcome.series.append(sample)
            on_sample(sample, blocked, totals)

        limits = Limits(workload.duration, deadline, stall)
        loop = Loop(
            producers,
            consumers,
            totals,
            workload.copies,
            backlog,
            workload.rate is not None,
            limits,
            sampled,
            sample_every,
        )
        before = os.times()
        outcome.started = time.monotonic_ns()
        if workload.rate is not None:
            self._set_pace(producers, workload.rate, outcome.started)
        try:
            loop.run(outcome.started)
        except KeyboardInterrupt:
            outcome.interrupted = self._interrupted = True
        outcome.seconds = (time.monotonic_ns() - outcome.started) / SECOND
        after = os.times()
        outcome.cpu_seconds = max(0.0, after.user - before.user + after.system - before.system)
        outcome.expected = loop.expected
        outcome.blocked_seconds = loop.blocked_seconds
        if outcome.interrupted:
            return outcome
        if totals.returned:
            raise PerfError(f"the broker returned {totals.returned} messages")
        if not consumers:
            self._await_depth(loop.expected)
        return outcome

    def _declare(self) -> int:
        """Declare queues, and the exchange of a fanout; returns how many messages they hold already."""
        workload = self._workload
        depth = sum(self._depth(queue, passive=False) for queue in self.queues)
        if workload.fanout:
            self._exchange = f"perf-{secrets.token_hex(6)}"
            self._control.call(
                1, frames.exchange_declare(1, self._exchange, "fanout", durable=True), frames.EXCHANGE_DECLARE_OK
            )
            for queue in self.queues:
                self._control.call(1, frames.queue_bind(1, queue, self._exchange), frames.QUEUE_BIND_OK)
        return depth

    def _depth(self, queue: str, passive: bool = True) -> int:
        answer = self._control.call(
            1, frames.queue_declare(1, queue, durable=True, passive=passive), frames.QUEUE_DECLARE_OK
        )
        if not passive:
            self._declared.append(queue)
        depth: int = unpack_from(">I", answer, 1 + answer[0])[0]
        return depth

    def _await_depth(self, expected: int) -> None:
        """Without confirms the last publishes may still be on their way into the queues."""
        give_up = time.monotonic() + _SETTLE_TIMEOUT
        while True:
            depth = sum(self._depth(queue) for queue in self.queues)
            if depth == expected:
                return
            if depth > expected or time.monotonic() > give_up:
                raise PerfError(f"the queues hold {depth} messages, {expected} were published")
            time.sleep(0.02)

    def _connect(self, name: str) -> Connection:
        connection = Connection(self._target, f"escrowmq perf {name}", _CALL_TIMEOUT)
        self._connections.append(connection)
        return connection

    def _producers(self) -> list[Producer]:
        workload = self._workload
        total = workload.producers * workload.channels
        producers: list[Producer] = []
        for number in range(workload.producers):
            connection = self._connect(f"producer {number}")
            if workload.channels > connection.channel_max:
                raise PerfError(f"the broker allows {connection.channel_max} channels on a connection")
            publishers = [
                self._publisher(connection, channel + 1, number * workload.channels + channel, total)
                for channel in range(workload.channels)
            ]
            producer = Producer(connection, self._totals, f"producer {number}", publishers)
            producer.prepare()
            producers.append(producer)
        return producers

    def _set_pace(self, producers: list[Producer], rate: float, start: int) -> None:
        """Share out the rate, the channels taking turns."""
        publishers = [publisher for producer in producers for publisher in producer.publishers.values()]
        for number, publisher in enumerate(publishers):
            phase = int(SECOND / rate * number)
            publisher.pace = Pace(rate / len(publishers), start + phase)

    def _publisher(self, connection: Connection, channel: int, number: int, total: int) -> Publisher:
        workload = self._workload
        keys = [""] if workload.fanout else self.queues[number::total] or [self.queues[number % len(self.queues)]]
        count = None if workload.count is None else workload.count // total + (number < workload.count % total)
        block = PublishBlock(
            channel,
            self._exchange,
            keys,
            workload.size,
            workload.persistent,
            connection.frame_max,
            workload.tx_size,
            workload.spread,
            workload.ids,
        )
        if workload.xa:
            return BranchPublisher(channel, block, self._totals, count, workload.stamped, workload.xa)
        if workload.tx_size:
            return TransactingPublisher(channel, block, self._totals, count, workload.stamped)
        if workload.confirms:
            return ConfirmingPublisher(channel, block, self._totals, count, workload.stamped, workload.window)
        return Publisher(channel, block, self._totals, count, workload.stamped)

    def _consumers(self) -> list[Consumer]:
        workload = self._workload
        consumers: list[Consumer] = []
        for number in range(workload.consumers):
            queues = self.queues[number :: workload.consumers] or [self.queues[number % len(self.queues)]]
            name = f"consumer {number}"
            prefetch = workload.prefetch if workload.ack_every else 0
            consumer = Consumer(
                self._connect(name), self._totals, name, queues, workload.ack_every, prefetch, workload.stamped
            )
            consumer.prepare()
            consumers.append(consumer)
        return consumers

    def close(self) -> None:
        """Close the connections, delete what was declared (unless it is to be kept)."""
        for connection in self._connections:
            if self._interrupted:  # it may be in the middle of a frame, behind which nothing can be said
                connection.socket.close()
                continue
            connection.socket.setblocking(True)
            connection.socket.settimeout(_CALL_TIMEOUT)
            connection.close()
        try:
            self._control.socket.settimeout(_DELETE_TIMEOUT)
            if self._exchange:
                self._control.call(1, frames.exchange_delete(1, self._exchange), frames.EXCHANGE_DELETE_OK)
            if not self._workload.keep:
                for queue in self._declared:
                    self._control.call(1, frames.queue_delete(1, queue), frames.QUEUE_DELETE_OK)
        except PerfError:
            pass  # the broker is gone or has closed; the run's own error, if any, says so
