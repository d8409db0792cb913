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
from escrowmq.core.messages.marks import Marks, Modification
from escrowmq.core.queues.deaths import HISTORY, circular, dead_envelope, in_parts
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.queues.portions import Portion

if TYPE_CHECKING:
    from escrowmq.core.branches.decision import Placing
    from escrowmq.core.budget import Budget
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
_PLACED: Final = 8  # messages in one queue each that cost one unit of the turn's budget
_UNMARKED: Final = Marks()
_envelope = attrgetter("run.envelope")


class Host(decision.Host, Protocol):
    """The part of the engine that dead-lettering needs."""

    settlements: Settlements
    requests: Budget
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

    def portion(self, outcome: Outcome) -> Portion:
        """Return an empty piece of work, to which messages are added before they leave their queues with `outcome`."""
        return Portion(self, outcome)

    def width(self, queue: Queue, entry: Entry, outcome: Outcome) -> tuple[int, bool]:
        """Return how many queues `entry` of `queue` would reach as a dead letter, and whether other messages with its
        envelope reach the same.
        """
        host, exchange = self._host, queue.options.dead_letter_exchange
        if exchange is None or queue.deleted or queue.is_stream:
            return 0, True
        vhost = host.vhost_of(queue)
        if exchange not in vhost.exchanges:
            return 0, True
        ((envelope, content),) = with_own_keys(host.formats, [entry])
        dead = dead_envelope(envelope, queue, outcome, host.now)
        alike = envelope is entry.run.envelope and not vhost.needs_content(exchange)
        return len(self._targets(vhost, dead, content)), alike

    def send(
        self, queue: Queue, entries: list[Entry], outcome: Outcome, modification: Modification | None = None
    ) -> None:
        """Publish entries that have left `queue` to its dead-letter exchange, if it has one. One record holds both
        steps for an entry. `modification` is the last change by their consumer.
        """
        host = self._host
        if queue.options.dead_letter_exchange is None:
            host.settlements.add(queue, entries, outcome)
            return
        if host.deliveries is not None:
            host.deliveries.flush()
        for some in in_parts(entries):  # the length of a record is limited, the number of entries is not
            self._send_together(queue, some, outcome, modification)

    def _send_together(
        self, queue: Queue, entries: list[Entry], outcome: Outcome, modification: Modification | None
    ) -> None:
        """Dead-letter entries in one record, or in several if they go to very many queues."""
        decision = Decision(self._host)
        self.place(decision, queue, entries, outcome, modification)
        if decision.places > PLACES and len(entries) > 1:
            half = len(entries) // 2
            for some in (entries[:half], entries[half:]):
                self._send_together(queue, some, outcome, modification)
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

    def place(
        self,
        decision: Placing,
        queue: Queue,
        entries: list[Entry],
        outcome: Outcome,
        modification: Modification | None = None,
    ) -> None:
        """Add the dead-lettering of `entries` of `queue` to `decision`. `modification` is the last change by their
        consumer.
        """
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
        changed = _annotated(host.formats, queue, entries, modification)
        for entry, (envelope, content) in zip(entries, with_own_keys(host.formats, entries), strict=True):
            content = changed.get(entry.position, content)
            if dead is None or apart or envelope is not before:
                if dead is not None and run and targets:
                    decision.place(dead, run, targets)
                    host.requests.left -= len(run) * len(targets) // _PLACED
                if dead is None or envelope is not before:
                    before = envelope
                    dead = dead_envelope(before, queue, outcome, host.now)
                targets = self._targets(vhost, dead, content)
                run = []
            run.append(content)
        if dead is not None and run and targets:
            decision.place(dead, run, targets)
            host.requests.left -= len(run) * len(targets) // _PLACED

    def _targets(self, vhost: VirtualHost[Queue], dead: Envelope, content: bytes) -> tuple[Queue, ...]:
        routed = self._host.route(vhost, dead, content)
        names = {death.queue for death in dead.deaths}
        if len(dead.deaths) <= HISTORY and not any(target.name in names for target in routed):
            return tuple(routed)  # in a fraction of the time, for thousands of queues
        return tuple(target for target in routed if not circular(dead.deaths, target.name))

    def place_routed(
        self,
        decision: Placing,
        queue: Queue,
        entries: list[Entry],
        outcome: Outcome,
        routes: Mapping[int, tuple[Queue, ...]],
    ) -> None:
        """Add the dead-lettering of `entries` of `queue` to `decision`, to queues that were settled before: `routes`
        names them by position. Those that were deleted meanwhile are left out.
        """
        changed = _annotated(self._host.formats, queue, entries, None)
        for envelope, alike in groupby(entries, _envelope):
            dead = dead_envelope(envelope, queue, outcome, self._host.now)
            for targets, group in groupby(alike, lambda entry: routes.get(entry.position, ())):
                living = tuple(target for target in targets if not target.deleted)
                if living:
                    decision.place(dead, [changed.get(entry.position, entry.content) for entry in group], living)


def _annotated(
    formats: Mapping[int, Format], queue: Queue, entries: list[Entry], modification: Modification | None
) -> dict[int, bytes]:
    """Return the contents, by position, of those entries that consumers have annotated, with their annotations."""
    found: dict[int, bytes] = {}
    if not queue.marks and (modification is None or not modification.annotations):
        return found
    for entry in entries:
        marks = queue.marks.get(entry.position, _UNMARKED)
        annotations = marks.annotations if modification is None else modification.applied(marks).annotations
        own = formats.get(entry.run.envelope.protocol) if annotations else None
        if own is not None and not own.keyed:
            found[entry.position] = own.annotated(entry.content, annotations)
    return found
