"""The demonstration's course: publish, consume, process with Spark, kill -9 in the middle, restart, resolve, count."""

from __future__ import annotations

import multiprocessing
import random
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

from escrowmq.demo import consumer, publisher
from escrowmq.demo.broker import Broker
from escrowmq.demo.display import Display
from escrowmq.demo.events import (
    Committed,
    Committing,
    Failed,
    Found,
    Interrupted,
    Marked,
    Progress,
    Published,
    Resolution,
    Tally,
)
from escrowmq.demo.streaming import Broken, Streaming

STALL_SECONDS: Final = 180.0
EPOCHS: Final = 2
"""The number of epochs after which the broker may be killed, because the query then makes steady progress."""
LATEST: Final = 0.7
"""The share of all transactions after which the broker is killed in any case."""
HURRY: Final = 4
"""The number of final transactions in which the broker is killed at once, so that it is killed at all."""
ACKNOWLEDGED: Final = 450
"""The deliveries per transaction of the consumer; not the publisher's number, so that some are usually unsettled."""
KILLS: Final = 8
"""The largest number of kills of the broker until one happens during a commit."""


@dataclass(slots=True)
class Result:
    """The counts at the end."""

    published: Published
    tally: Tally
    kills: int
    doubts: int
    seconds: float
    processed: int

    def faults(self) -> list[str]:
        """Return one line for each fault."""
        published, tally = self.published, self.tally
        wrong = []
        if tally.settled != published.count:
            wrong.append(f"{published.count:,} published, but {tally.settled:,} consumed")
        if self.processed != published.count:
            wrong.append(f"{published.count:,} published, but {self.processed:,} processed by Spark")
        if tally.lost:
            wrong.append(f"{tally.lost:,} lost")
        if tally.twice:
            wrong.append(f"{tally.twice:,} came back after their acknowledgement was committed")
        if tally.out_of_order:
            wrong.append(f"{tally.out_of_order:,} out of order")
        if tally.left:
            wrong.append(f"{tally.left:,} left in the queue")
        if tally.digest != published.digest and not tally.lost:
            wrong.append("the checksums of the published and the consumed messages differ")
        return wrong


class Story:
    """Watches publisher, consumer and Spark, and kills the broker during a commit."""

    def __init__(self, broker: Broker, streaming: Streaming, display: Display, size: int, target: int) -> None:
        self._broker = broker
        self._streaming = streaming
        self._display = display
        self._size = size
        self._target = target
        self._last = 0
        self._published = 0
        self._settled = 0
        self._kills = 0
        self._doubts = 0
        self._interrupted: Interrupted | None = None
        self._end: Published | None = None
        self._tally: Tally | None = None
        self._committing_at = 0.0
        self._commit_seconds = 0.002
        self._began = self._moved = time.monotonic()

    def play(self, data: Path, limit: int) -> Result:
        """Run from the first message to the last.

        Spark's driver must have been started. Raises Broken or BrokerFailed.
        """
        context = multiprocessing.get_context("spawn")
        from_consumer, consumer_pipe = context.Pipe()
        from_publisher, publisher_pipe = context.Pipe()
        url = self._broker.url
        self._last = -(-limit // self._size)  # never killed in, because the end marker follows directly
        children: list[BaseProcess] = [
            context.Process(target=consumer.run, args=(consumer_pipe, url, limit, ACKNOWLEDGED), daemon=True),
            context.Process(target=publisher.run, args=(publisher_pipe, url, data, limit, self._size), daemon=True),
        ]
        try:
            for child, pipe in zip(children, (consumer_pipe, publisher_pipe), strict=True):
                child.start()
                pipe.close()
            self._began = self._moved = time.monotonic()
            while self._tally is None or self._end is None or not self._streaming.stopped:
                self._turn(from_publisher, from_consumer)
        finally:
            for child in children:
                if child.pid is not None:  # an interrupt can arrive before every child has been started
                    child.terminate()
                    child.join()
        seconds = time.monotonic() - self._began
        return Result(self._end, self._tally, self._kills, self._doubts, seconds, self._streaming.processed)

    def _turn(self, from_publisher: Connection, from_consumer: Connection) -> None:
        pipes = [from_publisher] if self._end is None else []
        pipes += [from_consumer] if self._tally is None else []
        pipes += [] if self._streaming.stopped else [self._streaming.pipe]
        ready = wait(pipes, 0.5)
        for pipe in ready:
            assert isinstance(pipe, Connection)
            try:
                event = pipe.recv()
            except EOFError:
                name = {from_publisher: "publisher", from_consumer: "consumer"}.get(pipe, "Spark driver")
                raise Broken(f"the {name} exited unexpectedly") from None
            self._moved = time.monotonic()
            if pipe is from_publisher:
                self._from_publisher(event, from_publisher)
            elif pipe is from_consumer:
                self._from_consumer(event, from_publisher)
            else:
                self._streaming.told(event)
        self._direct_spark()
        self._broker.check()
        if time.monotonic() - self._moved > STALL_SECONDS:
            raise Broken(f"no progress for {STALL_SECONDS:.0f} s")
        self._display.show(self._published, self._settled, self._streaming.processed)

    def _from_publisher(self, event: Any, pipe: Connection) -> None:
        match event:
            case Committing():
                self._committing_at = time.monotonic()
                if self._due(event.number):
                    self._kill_within(pipe, hurry=event.number >= self._last - HURRY)
            case Committed():
                self._published = event.published
                self._commit_seconds += ((time.monotonic() - self._committing_at) - self._commit_seconds) / 10
            case Interrupted():
                self._interrupted = event
                self._doubts += event.commit_sent
                self._restart(event)
            case Published():
                self._end = event
            case Failed():
                raise Broken(event.reason)

    def _direct_spark(self) -> None:
        """Allow the driver to be killed once the broker was, and stop it when everything is processed."""
        self._streaming.may_kill = self._end is not None or (self._doubts > 0 and self._interrupted is None)
        if self._end is not None and self._streaming.processed >= self._end.count:
            self._streaming.finish()

    def _due(self, number: int) -> bool:
        """Return whether to kill the broker in this transaction: in the second half, once Spark works or the end is
        near.
        """
        if not self._target <= number < self._last or self._doubts or self._kills >= KILLS:
            return False
        return len(self._streaming.rows) >= EPOCHS or number >= LATEST * self._last

    def _kill_within(self, pipe: Connection, *, hurry: bool) -> None:
        """Kill the broker at a random moment of the commit that is being sent; not if its answer comes first.

        During the first third of the usual duration, the commit is sometimes on disk and sometimes not. `hurry` kills
        at once.
        """
        if pipe.poll(0.0 if hurry else random.uniform(0, 0.3 * self._commit_seconds)):  # noqa: S311 - no secret
            return
        self._broker.kill()
        self._kills += 1

    def _restart(self, lost: Interrupted) -> None:
        if not self._kills:
            raise Broken("the publisher's connection was lost although the broker had not been killed")
        killed = self._broker.pid
        ids = f"messages {lost.first:,} to {lost.first + lost.count - 1:,}"
        state = "its commit was sent but not answered" if lost.commit_sent else "its commit was not sent yet"
        self._display.say("kill -9", f"process {killed}, in transaction {lost.number:,} ({ids}): {state}")
        began = time.monotonic()
        self._broker.start()
        took = time.monotonic() - began
        self._display.say(
            "restart", f"process {self._broker.pid} is ready after {took:.2f} s, with the state that was on disk"
        )

    def _from_consumer(self, event: Any, publisher_pipe: Connection) -> None:
        match event:
            case Progress():
                self._settled = event.settled
            case Marked():
                self._resolve(event, publisher_pipe)
            case Tally():
                self._settled = event.settled
                self._tally = event
            case Failed():
                raise Broken(event.reason)

    def _resolve(self, marked: Marked, publisher_pipe: Connection) -> None:
        """Resolve acknowledgements in doubt: a marker has arrived, so everything before it in the queue has too."""
        lost, self._interrupted = self._interrupted, None
        if lost is None:
            return
        self._display.say("publisher", publisher_verdict(lost, marked.found))
        self._display.say("consumer", consumer_verdict(marked.resolution))
        if marked.resolution.doubtful_back not in {0, marked.resolution.doubtful}:
            raise Broken("a transaction of acknowledgements was applied in part")
        publisher_pipe.send(Found(marked.found))


def publisher_verdict(lost: Interrupted, found: int) -> str:
    """Describe the outcome of the transaction in which the broker was killed."""
    head = f"sent a marker to the end of the queue; when it arrived, {found:,} of the {lost.count:,} messages of\n"
    if found == lost.count:
        return f"{head}transaction {lost.number:,} had arrived: it is complete and is not sent again"
    if found == 0:
        return f"{head}transaction {lost.number:,} had arrived: it is absent as a whole and is sent again"
    return f"{head}transaction {lost.number:,} had arrived: HALF A TRANSACTION"


def consumer_verdict(resolution: Resolution) -> str:
    """Describe the outcome of the consumer's unsettled deliveries."""
    sent, back = resolution.doubtful, resolution.doubtful_back
    lines = []
    if sent:
        outcome = "none of them came back: that commit is on disk"
        if back:
            outcome = "all of them came back: that commit is not on disk"
        if 0 < back < sent:
            outcome = f"{back:,} of them came back: HALF A TRANSACTION"
        lines.append(f"had {sent:,} deliveries whose acknowledgement was sent in an unanswered commit; {outcome}")
    if resolution.unsettled:
        came = "all" if resolution.unsettled_back == resolution.unsettled else f"ONLY {resolution.unsettled_back:,}"
        lines.append(f"had {resolution.unsettled:,} deliveries that no commit had acknowledged yet; {came} came back")
    return "\n".join(lines) or "had no unsettled delivery"
