"""Counters of messages, branches and half messages since the start of the broker: plain integers that only grow.

They are counted for whole runs of messages, so that they cost the hot path next to nothing. A queue's own counters are
in its `counters`; those of a deleted queue are added to the ones of its virtual host. Nothing here is recorded.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from escrowmq.core.queues.outcome import DEATH_REASONS, Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from escrowmq.core.branches.branch import State
    from escrowmq.core.queues.queue import Queue

_ACCEPTED: Final = Outcome.ACCEPTED


class QueueCounters:
    """What happened to the messages of a queue.

    `delivered` counts deliveries that a client has to settle, and `auto_settled` those that are settled at once. Both
    include `redelivered`, messages that had been delivered before. `fetched` and `auto_fetched` are those parts of them
    for which clients have asked one by one. `accepted` counts messages that were acknowledged,
    including the `auto_settled` ones. `requeued` counts deliveries that returned to the queue. `others` counts messages
    that left the queue for any other reason than ACCEPTED. Those of them that had a dead-letter exchange to go to are
    in `dead_lettered`, too, by the same reasons. What arrived is not counted here: positions do that.
    """

    __slots__ = (
        "accepted",
        "auto_fetched",
        "auto_settled",
        "dead_lettered",
        "delivered",
        "fetched",
        "others",
        "redelivered",
        "requeued",
    )

    def __init__(self) -> None:
        self.accepted = self.auto_settled = self.delivered = self.redelivered = self.requeued = 0
        self.fetched = self.auto_fetched = 0
        self.others: dict[Outcome, int] = {}
        self.dead_lettered: dict[Outcome, int] = {}

    @property
    def acknowledged(self) -> int:
        """Messages that their clients have acknowledged."""
        return self.accepted - self.auto_settled

    def add(self, other: QueueCounters) -> None:
        """Add the counters of another queue."""
        self.accepted += other.accepted
        self.auto_settled += other.auto_settled
        self.delivered += other.delivered
        self.redelivered += other.redelivered
        self.fetched += other.fetched
        self.auto_fetched += other.auto_fetched
        self.requeued += other.requeued
        _add(self.others, other.others)
        _add(self.dead_lettered, other.dead_lettered)


class QueueTotals(QueueCounters):
    """The sums of several queues. `arrived` counts the messages that they got, from wherever they came."""

    __slots__ = ("arrived",)

    def __init__(self) -> None:
        super().__init__()
        self.arrived = 0

    def add_queue(self, queue: Queue) -> None:
        """Add the counters of a queue."""
        self.add(queue.counters)
        self.arrived += arrived(queue)


class Traffic:
    """What the clients of one protocol publish in one virtual host, and how they are answered.

    `received` counts messages. `to_confirm` counts those for which the client wants an answer; it gets a positive one
    for those in `confirmed`, a negative one for those in `refused`. `returned` and `dropped` count messages without a
    queue, of which the client was told or not. Messages of half messages and local transactions are `received`, but
    not `to_confirm`.
    """

    __slots__ = ("confirmed", "dropped", "received", "refused", "returned", "to_confirm")

    def __init__(self) -> None:
        self.received = self.to_confirm = self.confirmed = self.refused = self.returned = self.dropped = 0

    def answered(self, confirmed: int, refused: int = 0) -> None:
        """Count answers to publishes."""
        self.to_confirm += confirmed + refused
        self.confirmed += confirmed
        self.refused += refused

    def add(self, other: Traffic) -> None:
        """Add the counters of another virtual host."""
        for name in Traffic.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class BranchCounters:
    """Branches of one kind: how many have begun, and how many have entered each other state."""

    __slots__ = ("begun", "entered")

    def __init__(self) -> None:
        self.begun = 0
        self.entered: Counter[State] = Counter()


class HalfCounters:
    """Half messages: how many were stored and decided, and how often a producer was asked about one."""

    __slots__ = ("checks", "committed", "parked", "rolled_back", "stored")

    def __init__(self) -> None:
        self.stored = self.checks = self.parked = self.committed = self.rolled_back = 0


class BrokerCounters:
    """All counters of a broker but those that queues have. `local` and `xa` count branches without and with an xid.

    `traffic` is by virtual host and protocol, `past` by virtual host: the sums of its deleted queues. Those of deleted
    virtual hosts are under an empty name. `queues_declared` includes declarations of existing queues. `empty_fetches`
    counts requests for a single message that found none.
    """

    def __init__(self) -> None:
        self.local = BranchCounters()
        self.xa = BranchCounters()
        self.half = HalfCounters()
        self.channels_opened = self.consumers_added = 0
        self.queues_declared = self.queues_created = self.queues_deleted = 0
        self.empty_fetches = 0
        self.traffic: dict[tuple[str, str], Traffic] = {}
        self.past: dict[str, QueueTotals] = {}

    def traffic_of(self, vhost: str, protocol: str) -> Traffic:
        """Return the counters for the clients of a protocol in a virtual host."""
        found = self.traffic.get((vhost, protocol))
        if found is None:
            found = self.traffic[vhost, protocol] = Traffic()
        return found

    def queue_deleted(self, queue: Queue) -> None:
        """Count the deletion of a queue, and keep its counters."""
        self.queues_deleted += 1
        self._past(queue.vhost).add_queue(queue)

    def vhost_deleted(self, name: str) -> None:
        """Keep the counters of a virtual host whose queues were deleted."""
        totals = self.past.pop(name, None)
        if totals is not None:
            rest = self._past("")
            rest.add(totals)
            rest.arrived += totals.arrived
        for vhost, protocol in [key for key in self.traffic if key[0] == name]:
            self.traffic_of("", protocol).add(self.traffic.pop((vhost, protocol)))

    def _past(self, vhost: str) -> QueueTotals:
        found = self.past.get(vhost)
        if found is None:
            found = self.past[vhost] = QueueTotals()
        return found


def arrived(queue: Queue) -> int:
    """Return how many messages a queue has got since it was declared. Positions are never used again."""
    return queue.next_position - 1


def count_left(queue: Queue, outcome: Outcome, count: int) -> None:
    """Count messages that have left a queue."""
    counters = queue.counters
    if outcome is _ACCEPTED:
        counters.accepted += count
        return
    counters.others[outcome] = counters.others.get(outcome, 0) + count
    if queue.options.dead_letter_exchange is not None and outcome in DEATH_REASONS:
        counters.dead_lettered[outcome] = counters.dead_lettered.get(outcome, 0) + count


def _add(to: dict[Outcome, int], other: Mapping[Outcome, int]) -> None:
    for outcome, count in other.items():
        to[outcome] = to.get(outcome, 0) + count
