"""A whole run: declare, connect, load, verify, delete."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from escrowmq.perf.amqp010.session import open_session as open_amqp010
from escrowmq.perf.amqp091.session import open_session as open_amqp091
from escrowmq.perf.amqp10.session import open_session as open_amqp10
from escrowmq.perf.errors import PerfError
from escrowmq.perf.loop import Limits, Loop, Sample
from escrowmq.perf.pace import SECOND
from escrowmq.perf.peer import Producer
from escrowmq.perf.protocol import RunSession
from escrowmq.perf.rocketmq.grpc.session import GrpcRunSession
from escrowmq.perf.rocketmq.remoting.session import RemotingSession
from escrowmq.perf.totals import Totals
from escrowmq.perf.url import Target
from escrowmq.perf.workload import AMQP010, AMQP091, AMQP10, ROCKETMQ, ROCKETMQ_GRPC, Workload

_SETTLE_TIMEOUT = 30.0
_OPENS: dict[str, Callable[[Target, Workload, Totals], RunSession]] = {
    AMQP091: open_amqp091,
    AMQP010: open_amqp010,
    AMQP10: open_amqp10,
    ROCKETMQ: RemotingSession,
    ROCKETMQ_GRPC: GrpcRunSession,
}


@dataclass(slots=True)
class Outcome:
    """The measurements of a run."""

    workload: Workload
    product: str
    version: str
    totals: Totals
    expected: int
    seconds: float = 0.0
    """Seconds from the first publish (or consume) to the end."""
    started: int = 0
    cpu_seconds: float = 0.0
    """User and system time (s) of the tool itself."""
    blocked_seconds: float = 0.0
    interrupted: bool = False
    """Whether Ctrl-C ended the run; nothing was verified then."""
    series: list[Sample] = field(default_factory=list)


def run(
    target: Target,
    workload: Workload,
    deadline: float,
    stall: float,
    on_sample: Callable[[Sample, str | None, Totals], None],
    sample_every: float,
) -> Outcome:
    """Load the broker. Raises PerfError if it cannot be reached, closes, stalls, or loses or repeats messages."""
    totals = Totals()
    session: RunSession = _OPENS[workload.protocol](target, workload, totals)
    outcome = Outcome(workload, session.product, session.version, totals, 0)

    def sampled(sample: Sample, blocked: str | None) -> None:
        outcome.series.append(sample)
        on_sample(sample, blocked, totals)

    try:
        backlog = session.declare()
        producers = session.producers()
        consumers = session.consumers()
        limits = Limits(workload.duration, deadline, stall)
        paced = workload.rate is not None
        loop = Loop(producers, consumers, totals, workload.copies, backlog, paced, limits, sampled, sample_every)
        try:
            _measure(outcome, loop, producers)
        finally:
            loop.close()
        if not outcome.interrupted:
            _verify(session, outcome, bool(consumers))
        return outcome
    finally:
        session.close(abruptly=outcome.interrupted)


def _measure(outcome: Outcome, loop: Loop, producers: list[Producer]) -> None:
    """Run the load, and note the tool's own CPU time."""
    workload = outcome.workload
    before = os.times()
    outcome.started = time.monotonic_ns()
    try:
        loop.subscribe()
        if producers:
            # Without producers, messages wait in the queues and arrive with the subscriptions.
            before = os.times()
            outcome.started = time.monotonic_ns()
        if workload.rate is not None:
            _set_pace(workload, producers, workload.rate, outcome.started)
        loop.run(outcome.started)
    except KeyboardInterrupt:
        outcome.interrupted = True
    outcome.seconds = (time.monotonic_ns() - outcome.started) / SECOND
    after = os.times()
    outcome.cpu_seconds = max(0.0, after.user - before.user + after.system - before.system)
    outcome.expected = loop.expected
    outcome.blocked_seconds = loop.blocked_seconds


def _set_pace(workload: Workload, producers: list[Producer], rate: float, start: int) -> None:
    """Divide the rate among the channels, which take turns."""
    channels = workload.channels
    for number, producer in enumerate(producers):
        firsts = [start + int(SECOND / rate * (number * channels + channel)) for channel in range(channels)]
        producer.set_pace(rate / workload.publishers, firsts)


def _verify(session: RunSession, outcome: Outcome, consumed: bool) -> None:
    """Raise PerfError if messages were returned, or if the queues do not hold exactly the messages that were not
    consumed.

    Without confirms, the last publishes may still be on their way into the queues, so the tool waits for them.
    """
    if outcome.totals.returned:
        raise PerfError(f"the broker returned {outcome.totals.returned} messages")
    give_up = time.monotonic() + _SETTLE_TIMEOUT
    while not consumed:
        depth = session.depth()
        if depth == outcome.expected:
            return
        if depth > outcome.expected or time.monotonic() > give_up:
            raise PerfError(f"the queues hold {depth} messages, but {outcome.expected} were published")
        time.sleep(0.02)
