"""Operations on counters: the sums for a monitoring system, and the counters of each queue."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from escrowmq.admin.delayed import delayed_messages
from escrowmq.admin.operation import Listing, Operation, Row
from escrowmq.admin.pieces import Pieces
from escrowmq.admin.ports import BrokerProcess
from escrowmq.admin.queues import named_queue
from escrowmq.core.counters import BranchCounters, QueueCounters, QueueTotals, Traffic, arrived
from escrowmq.core.queues.outcome import DEATH_REASONS, Outcome
from escrowmq.core.queues.queue import Queue
from escrowmq.core.termini.terminus import LinkRole, Terminus

_TOTALLED: Final = 8  # queues or links in one step of the sums
_PLAIN: Final = (
    *("channels_opened", "consumers_added", "queues_declared", "queues_created", "queues_deleted"),
    "empty_fetches",
)
_GAUGES: Final = ("queues", "ready", "unsettled", "consumers")


class CounterAdmin:
    """The operations by name are in `operations`. Counters begin at 0 when the broker starts."""

    def __init__(self, process: BrokerProcess, pieces: Pieces) -> None:
        self._process = process
        self._broker = process.broker
        self._counters = process.broker.engine.counters
        self._pieces = pieces
        self.operations: Mapping[str, Operation] = {
            "counter.totals": self.totals,
            "counter.queues": self.list_queues,
            "counter.queue": self.show_queue,
        }

    async def totals(self) -> dict[str, Any]:
        """Return the sums of all counters: by virtual host those of its queues, by virtual host and protocol those of
        publishes, and those of branches, half messages and links. The sums never fall, except those of a virtual host
        that is deleted.
        """
        return await self._pieces.result(self._totals())

    async def list_queues(self, vhosts: Iterable[str] = ()) -> Listing:
        """Return the counters of every queue, or of those in some virtual hosts. Unknown names are passed over."""
        wanted = set(vhosts)
        queues = [
            queue
            for vhost in self._broker.directory.vhosts.values()
            if not wanted or vhost.name in wanted
            for queue in vhost.queues.values()
        ]
        return Listing(self._pieces, self._rows(queues))

    async def show_queue(self, vhost: str, name: str) -> Row:
        """Return the counters of one queue. Raises NothingFound."""
        return _queue_row(named_queue(self._broker, vhost, name))

    def _rows(self, queues: Iterable[Queue]) -> Iterator[Row | None]:
        for queue in queues:
            yield None if queue.deleted else _queue_row(queue)

    def _totals(self) -> Generator[None, None, dict[str, Any]]:
        counters, broker = self._counters, self._broker
        # Both are taken together, so that a queue that is deleted from now on is counted once.
        past = {name: _copied(totals) for name, totals in counters.past.items()}
        queues = [queue for vhost in broker.directory.vhosts.values() for queue in vhost.queues.values()]
        gauges = {name: dict.fromkeys(_GAUGES, 0) for name in broker.directory.vhosts}
        for queue in (each := iter(queues)):
            for one in (queue, *islice(each, _TOTALLED - 1)):
                past.setdefault(one.vhost, QueueTotals()).add_queue(one)
                if not one.deleted and one.vhost in gauges:
                    _gauge(gauges[one.vhost], one)
            yield
        for name, gauge in gauges.items():
            vhost = broker.directory.vhosts.get(name)
            gauge["delayed"] = 0 if vhost is None else delayed_messages(vhost)
        links = yield from _of_links(list(broker.termini.by_key.values()))
        half = counters.half
        return {
            "vhosts": {
                name: {**_counters(past.get(name, QueueTotals())), **gauges.get(name, {})}
                for name in sorted({*past, *gauges})
            },
            "traffic": [
                {"vhost": vhost, "protocol": protocol, **{name: getattr(each, name) for name in Traffic.__slots__}}
                for (vhost, protocol), each in counters.traffic.items()
            ],
            "branches": {"local": _branches(counters.local), "xa": _branches(counters.xa)},
            "half": {name: getattr(half, name) for name in type(half).__slots__},
            "links": links,
            "process": self._process.counters(),
            "channels": sum(broker.engine.channels.values()),
            **{name: getattr(counters, name) for name in _PLAIN},
        }


def _of_links(termini: list[Terminus]) -> Generator[None, None, dict[str, dict[str, int]]]:
    """Return the number of links and of their unsettled deliveries, by role."""
    found = {role.value: {"links": 0, "unsettled": 0} for role in LinkRole}
    for i, terminus in enumerate(termini, 1):
        row = found[terminus.key.role.value]
        row["links"] += 1
        row["unsettled"] += terminus.unsettled
        if i % _TOTALLED == 0:
            yield
    return found


def _copied(totals: QueueTotals) -> QueueTotals:
    copy = QueueTotals()
    copy.add(totals)
    copy.arrived = totals.arrived
    return copy


def _gauge(gauges: dict[str, int], queue: Queue) -> None:
    gauges["queues"] += 1
    gauges["ready"] += queue.ready
    gauges["unsettled"] += queue.unsettled
    gauges["consumers"] += len(queue.consumers)


def _queue_row(queue: Queue) -> Row:
    return {
        "vhost": queue.vhost,
        "name": queue.name,
        "ready": queue.ready,
        "unsettled": queue.unsettled,
        "consumers": len(queue.consumers),
        **_of_queue(queue.counters, arrived(queue)),
    }


def _counters(totals: QueueTotals) -> dict[str, Any]:
    return _of_queue(totals, totals.arrived)


def deliveries(counters: QueueCounters, messages_arrived: int) -> dict[str, Any]:
    """Return the counters of what arrived, was delivered and was acknowledged."""
    return {
        "arrived": messages_arrived,
        "delivered": counters.delivered,
        "auto_settled": counters.auto_settled,
        "fetched": counters.fetched,
        "auto_fetched": counters.auto_fetched,
        "redelivered": counters.redelivered,
        "requeued": counters.requeued,
        "acknowledged": counters.acknowledged,
    }


def _of_queue(counters: QueueCounters, messages_arrived: int) -> dict[str, Any]:
    return {
        **deliveries(counters, messages_arrived),
        "left": {outcome.name.lower(): counters.others.get(outcome, 0) for outcome in _LEAVING},
        "dead_lettered": {reason: counters.dead_lettered.get(outcome, 0) for outcome, reason in DEATH_REASONS.items()},
    }


_LEAVING: Final = tuple(outcome for outcome in Outcome if outcome is not Outcome.ACCEPTED)


def _branches(counters: BranchCounters) -> dict[str, int]:
    return {"begun": counters.begun, **{state.name.lower(): count for state, count in counters.entered.items()}}
