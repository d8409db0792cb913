"""Deliveries that have arrived and wait to be taken, and the consumers that fetch them in bulk."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from escrowmq.client.errors import ConsumerCancelled
from escrowmq.client.incoming import Run
from escrowmq.wire.amqp091.properties import Properties
from escrowmq.wire.amqp091.spec import BasicDeliver

if TYPE_CHECKING:
    from escrowmq.client.consuming import Consuming

Callback = Callable[[Any, BasicDeliver, Properties, bytes], None]
"""Called with channel, method, properties and body, as in pika."""


class Message(NamedTuple):
    """One delivery, in the form that pika's `consume` yields."""

    method: BasicDeliver
    properties: Properties
    body: bytes


class Batch:
    """Deliveries in order, as runs. The deliveries of one run share their address and properties."""

    def __init__(self, runs: list[Run]) -> None:
        self.runs = runs

    def __len__(self) -> int:
        return sum(len(run.tags) for run in self.runs)

    @cached_property
    def tags(self) -> list[int]:
        """The delivery tags of all deliveries."""
        return self.runs[0].tags if len(self.runs) == 1 else [tag for run in self.runs for tag in run.tags]

    @cached_property
    def bodies(self) -> list[bytes]:
        """The bodies of all deliveries."""
        return self.runs[0].bodies if len(self.runs) == 1 else [body for run in self.runs for body in run.bodies]


class Inbox:
    """A first-in, first-out buffer of runs, from which deliveries are taken one at a time or in bulk."""

    __slots__ = ("_at", "_properties", "_runs", "count")

    def __init__(self) -> None:
        self.count = 0
        """The number of deliveries in the buffer."""
        self._runs: deque[Run] = deque()
        self._at = 0  # how many deliveries of the first run have been taken
        self._properties: Properties | None = None  # those of the first run, once decoded

    def add(self, run: Run) -> None:
        """Append a run."""
        self._runs.append(run)
        self.count += len(run.tags)

    def pop(self) -> Message:
        """Take the next delivery.

        The deliveries of one run get the same `Properties` object. Raises IndexError if empty.
        """
        run, at = self._runs[0], self._at
        if self._properties is None:
            self._properties = Properties.decode(run.props)
        first = run.deliver
        message = Message(
            BasicDeliver(first.consumer_tag, run.tags[at], first.redelivered, first.exchange, first.routing_key),
            self._properties,
            run.bodies[at],
        )
        self.count -= 1
        self._at = at + 1
        if self._at == len(run.tags):
            self._drop()
        return message

    def take(self, most: int | None) -> list[Run]:
        """Take the next `most` deliveries, or all if None, as runs."""
        taken: list[Run] = []
        left = self.count if most is None else min(most, self.count)
        self.count -= left
        while left:
            run, at = self._runs[0], self._at
            number = min(left, len(run.tags) - at)
            if number == len(run.tags):
                taken.append(run)
            else:
                part = Run(run.deliver, run.props)
                part.tags, part.bodies = run.tags[at : at + number], run.bodies[at : at + number]
                taken.append(part)
            left -= number
            self._at = at + number
            if self._at == len(run.tags):
                self._drop()
        return taken

    def _drop(self) -> None:
        self._runs.popleft()
        self._at = 0
        self._properties = None

    def without(self, consumer_tag: str) -> list[int]:
        """Take out the deliveries to one consumer. Returns their delivery tags."""
        runs = self.take(None)
        gone: list[int] = []
        for run in runs:
            if run.deliver.consumer_tag == consumer_tag:
                gone += run.tags
            else:
                self.add(run)
        return gone


class Consumer:
    """A subscription whose deliveries are fetched in bulk. `cancelled` is set once the broker has cancelled it."""

    def __init__(self, channel: Consuming, queue: str, tag: str, auto_ack: bool) -> None:
        self.channel = channel
        self.queue = queue
        self.tag = tag
        self.auto_ack = auto_ack
        self.cancelled = False
        self.inbox = Inbox()

    def __len__(self) -> int:
        return self.inbox.count

    def fetch(self, most: int | None = None, *, least: int = 1, timeout: float | None = None) -> Batch:
        """Return up to `most` deliveries (None: all that have arrived), as soon as there are `least`.

        After `timeout` seconds (None: the connection's timeout) it returns the deliveries that have arrived, possibly
        none.

        Raises:
            ConsumerCancelled: The broker has cancelled the consumer, and all its deliveries have been taken.
        """
        if most is not None:
            least = min(least, most)
        self.channel.wait_for_deliveries(self, least, timeout)
        if self.cancelled and not self.inbox.count:
            raise ConsumerCancelled(f"the broker has cancelled consumer {self.tag!r} of queue {self.queue!r}")
        return Batch(self.inbox.take(most))

    def cancel(self) -> None:
        """Stop the consumer. Deliveries that were not fetched go back to the queue."""
        self.channel.basic_cancel(self.tag)
