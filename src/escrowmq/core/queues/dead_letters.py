"""The dead letters of all queues: where they go, and the records with which they leave and arrive.

`deaths.py` has the rules for a single message: its new envelope, and the detection of cycles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Protocol

from escrowmq.core.branches import decision
from escrowmq.core.branches.decision import Decision
from escrowmq.core.messages.keys import with_own_keys
from escrowmq.core.queues.deaths import circular, dead_envelope, in_parts
from escrowmq.core.queues.outcome import Outcome

if TYPE_CHECKING:
    from escrowmq.core.branches.decision import Placing
    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.messages.envelope import Envelope
    from escrowmq.core.messages.formats import Format
    from escrowmq.core.queues.delivery_log import Deliveries
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.queues.settlement import Settlements
    from escrowmq.core.topology.vhost import VirtualHost

PLACES: Final = 1_000_000
"""Maximum number of places in one record, which are runs of messages times their queues. A record of one message may
have more."""
_envelope = attrgetter("run.envelope")


class Host(decision.Host, Protocol):
    """The part of the engine that dead-lettering needs."""

    settlements: Settlements
    deliveries: Deliveries | None
    formats: dict[int, Format]

    def vhost_of(self, queue: Queue) -> VirtualHost[Queue]:
        """Return the virtual host of a queue."""
        ...

    def route(self, vhost: VirtualHost[Queue], envelope: Envelope, content: bytes = b"") -> Sequence[Queue]:
        """Return the queues that a message is routed to."""
        ...


class DeadLetters:
    """Publishes messages that leave their queues to the queues' dead-letter exchanges."""

    __slots__ = ("_host",)

    def __init__(self, host: Host) -> None:
        self._host = host

    def send(self, queue: Queue, entries: list[Entry], outcome: Outcome) -> None:
        """Publish entries that have left `queue` to its dead-letter exchange, if it has one. One record holds both
        steps for an entry.
        """
        host = self._host
        if queue.options.dead_letter_exchange is None:
            host.settlements.add(queue, entries, outcome)
            return
        if host.deliveries is not None:
            host.deliveries.flush()
        for some in in_parts(entries):  # the length of a record is limited, the number of entries is not
            self._send_together(queue, some, outcome)

    def _send_together(self, queue: Queue, entries: list[Entry], outcome: Outcome) -> None:
        """Dead-letter entries in one record, or in several if they go to very many queues."""
        decision = Decision(self._host)
        self.place(decision, queue, entries, outcome)
        if decision.places > PLACES and len(entries) > 1:
            half = len(entries) // 2
            for some in (entries[:half], entries[half:]):
                self._send_together(queue, some, outcome)
            return
        decision.remove(queue, entries, outcome)
        decision.apply()

    def routes(self, queue: Queue, entries: list[Entry], outcome: Outcome) -> dict[int, tuple[Queue, ...]]:
        """Return the queues that would receive `entries` of `queue` as dead letters now, by position."""
        routes: dict[int, tuple[Queue, ...]] = dict.fromkeys([entry.position for entry in entries], ())
        host = self._host
        vhost = host.vhost_of(queue)
        exchange = queue.options.dead_letter_exchange
        if exchange is None or exchange not in vhost.exchanges:
            return routes
        apart = vhost.needs_content(exchange)
        equal: dict[tuple[Queue, ...], tuple[Queue, ...]] = {}  # one object for equal routes
        for envelope, group in groupby(entries, _envelope):
            dead = dead_envelope(envelope, queue, outcome, host.now)
            found: tuple[Queue, ...] | None = None
            for entry in group:
                if apart or found is None:
                    living = self._targets(vhost, dead, entry.content)
                    found = equal.setdefault(living, living)
                routes[entry.position] = found
        return routes

    def place(self, decision: Placing, queue: Queue, entries: list[Entry], outcome: Outcome) -> None:
        """Add the dead-lettering of `entries` of `queue` to `decision`."""
        host = self._host
        vhost = host.vhost_of(queue)
        exchange = queue.options.dead_letter_exchange
        if exchange is None or exchange not in vhost.exchanges:
            return
        run: list[bytes] = []
        targets: tuple[Queue, ...] = ()
        before: Envelope | None = None
        dead: Envelope | None = None
        apart = vhost.needs_content(exchange)
        for envelope, content in with_own_keys(host.formats, entries):
            if dead is None or apart or envelope is not before:
                if dead is not None and run and targets:
                    decision.place(dead, run, targets)
                if dead is None or envelope is not before:
                    before = envelope
                    dead = dead_envelope(before, queue, outcome, host.now)
                targets = self._targets(vhost, dead, content)
                run = []
            run.append(content)
        if dead is not None and run and targets:
            decision.place(dead, run, targets)

    def _targets(self, vhost: VirtualHost[Queue], dead: Envelope, content: bytes) -> tuple[Queue, ...]:
        routed = self._host.route(vhost, dead, content)
        return tuple(target for target in routed if not circular(dead.deaths, target.name))


def place_routed(
    decision: Placing,
    queue: Queue,
    entries: list[Entry],
    outcome: Outcome,
    routes: Mapping[int, tuple[Queue, ...]],
    now: int,
) -> None:
    """Add the dead-lettering of `entries` of `queue` to `decision`, to queues that were settled before: `routes` names
    them by position. Those that were deleted meanwhile are left out.
    """
    for envelope, alike in groupby(entries, _envelope):
        dead = dead_envelope(envelope, queue, outcome, now)
        for targets, group in groupby(alike, lambda entry: routes.get(entry.position, ())):
            living = tuple(target for target in targets if not target.deleted)
            if living:
                decision.place(dead, [entry.content for entry in group], living)
