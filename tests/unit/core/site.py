"""A broker on a journal in memory, for tests: real parts, without sockets and threads, at a given time."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from escrowmq.core.branches.branch import Limits, Publication, TransactionBranch
from escrowmq.core.branches.watch import Watch
from escrowmq.core.broker import Broker
from escrowmq.core.engine import Engine, Receipt
from escrowmq.core.messages.entry import Entry
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.ports import ReceiverOrigin
from escrowmq.core.queues.consumer import Consumer
from escrowmq.core.queues.credit import UNLIMITED, Credit, Replenishment
from escrowmq.core.queues.queue import Queue, Session
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.unreadable import LogUnreadable
from escrowmq.core.recovery.relocation import Relocation
from escrowmq.core.recovery.replay import Recovery
from escrowmq.core.recovery.snapshot import snapshot
from escrowmq.core.topology.declaration import Declaration
from escrowmq.core.topology.vhost import VirtualHost
from escrowmq.journal.journal import Journal
from escrowmq.journal.memory import MemoryStorage
from escrowmq.journal.writer import JournalSink

Held = tuple[int, bytes, bool]
"""Position, body, whether it was delivered before."""


class Sink:
    """A receiver that accepts all deliveries while it is writable, and records them."""

    def __init__(self) -> None:
        self.writable = True
        self.got: list[tuple[Consumer, Entry]] = []
        self.waiting: list[Consumer] = []
        self.drains: list[tuple[Consumer, int]] = []
        self.gone: list[Consumer] = []

    def deliver(self, consumer: Consumer, entries: list[Entry]) -> None:
        self.got += [(consumer, entry) for entry in entries]

    def deliver_each(self, deliveries: list[tuple[Consumer, list[Entry]]]) -> None:
        for consumer, entries in deliveries:
            self.deliver(consumer, entries)

    @property
    def origin(self) -> ReceiverOrigin:
        return ReceiverOrigin("127.0.0.1:1", 1, "guest")

    def stalled(self, consumer: Consumer) -> None:
        self.waiting.append(consumer)

    def drained(self, consumer: Consumer, unused: int) -> None:
        self.drains.append((consumer, unused))

    def cancelled(self, consumer: Consumer) -> None:
        self.gone.append(consumer)

    @property
    def contents(self) -> list[bytes]:
        return [entry.content for _, entry in self.got]

    def held(self) -> list[tuple[Consumer, list[Entry]]]:
        """Implements a holder (`Engine.holders`) of all deliveries received."""
        return [(consumer, [entry]) for consumer, entry in self.got]

    def copy_ahead(self, at: int, most: int) -> tuple[int, int]:
        return 1, 0

    def held_part(self, start: int, most: int) -> list[tuple[Consumer, Entry]]:
        return list(self.got[start : start + most])


class Hand:
    """A client that holds deliveries, and gets them back if their settlement is undone."""

    def __init__(self) -> None:
        self.kept: list[Entry] = []

    def keep(self, consumer: Consumer, tags: Sequence[int], entries: Sequence[Entry]) -> None:
        self.kept += entries


class Site:
    """A started broker with one virtual host, `/`."""

    def __init__(
        self,
        storage: MemoryStorage | None = None,
        *,
        now: int = 1_000_000,
        resident_limit: int = 1 << 20,
        segment_bytes: int = 4096,
        prepare: Callable[[Broker], None] = lambda _: None,
        resume: Callable[[Engine, int], None] = lambda *_: None,
        sink: JournalSink | None = None,
    ) -> None:
        """`prepare` is called before recovery. `resume` may set the broker's time after it, and gets the time of the
        last record in milliseconds.
        """
        self.storage = storage or MemoryStorage(random.Random(1))
        self.journal = Journal.open(
            self.storage, segment_bytes=segment_bytes, journal_id=b"0123456789abcdef", sink=sink
        )
        self.broker = Broker(self.journal, random.Random(2), resident_limit=resident_limit)
        self.broker.engine.now = now
        prepare(self.broker)
        recovery = Recovery(self.broker)
        self.replayed: list[tuple[int, int, bytes]] = []
        """The records in the journal: LSN, kind, payload."""
        self.last_ms = 0
        for lsn, kind, payload, time_us in self.journal.replay():
            self.last_ms = time_us // 1000
            self.replayed.append((lsn, kind, bytes(payload)))
            recovery.apply(lsn, kind, payload)
        resume(self.broker.engine, self.last_ms)
        recovery.finish()
        self.broker.directory.end_restore()
        self.broker.directory.add_vhost("/")
        self.sync()

    @property
    def vhost(self) -> VirtualHost[Queue]:
        return self.broker.directory.vhost("/")

    @property
    def now(self) -> int:
        return self.broker.engine.now

    @now.setter
    def now(self, now: int) -> None:
        self.broker.engine.now = now

    # -- time

    def sync(self) -> None:
        """Sync everything that was appended."""
        while (batch := self.journal.take_batch(self.broker.engine.now * 1000)) is not None:
            batch.write()
            self.journal.batch_done(batch)
        self.broker.engine.synced(self.journal.synced_lsn)

    def write(self) -> None:
        """Write what was appended to the disk. Nobody learns of it, as if the broker died at this moment."""
        batch = self.journal.take_batch(self.broker.engine.now * 1000)
        if batch is not None:
            batch.write()

    def turn(self, *, sync: bool = True) -> None:
        """End a turn as the server does, and all turns that continue its deliveries."""
        engine = self.broker.engine
        engine.run_deadlines()
        engine.turn.end()
        while engine.turn.unfinished or (engine.next_deadline() or engine.now + 1) <= engine.now:
            engine.run_deadlines()
            engine.turn.end()
        if sync:
            self.sync()
            self.broker.engine.turn.end()

    def after(self, ms: int) -> None:
        """End a turn `ms` milliseconds later."""
        self.broker.engine.now += ms
        self.turn()

    def restart(self, **options: Any) -> Site:
        """Return the broker that is restored from the synced data."""
        return Site(self.storage, now=self.broker.engine.now, **options)

    def snapshot(self) -> None:
        """Take a snapshot, and put it in force."""
        self.broker.engine.turn.end()
        records = [(int(kind), b"".join(parts)) for kind, parts in snapshot(self.broker)]
        taken = self.journal.begin_snapshot(records, self.broker.engine.now * 1000)
        try:
            taken.write()
        finally:
            self.journal.snapshot_done(taken)
        self.tidy()

    def compact(self) -> int:
        """Move all living messages to the end of the log, as far as they can be read. Return their number."""
        relocation = Relocation(self.broker, 0, self.journal.end_lsn)
        with suppress(LogUnreadable):
            while relocation.step():
                pass
        return relocation.moved

    def tidy(self) -> None:
        """Delete segments without living messages."""
        self.sync()
        while (work := self.journal.housekeeping()) is not None or self.journal.removal_lsn is not None:
            if work is None:
                self.sync()
            else:
                work()

    # -- what clients do

    def queue(
        self,
        name: str = "q",
        arguments: Mapping[str, object] | None = None,
        *,
        durable: bool = True,
        exclusive: bool = False,
        auto_delete: bool = False,
        session: Session | None = None,
    ) -> Queue:
        declaration = Declaration(durable, exclusive, auto_delete, arguments or {})
        chosen = name or self.broker.directory.fresh_queue_name(self.vhost)
        return self.broker.directory.declare_queue(
            self.vhost, chosen, declaration, session or Session("test"), generated=not name
        )

    def publish(self, key: str, *contents: bytes, exchange: str = "", durable: bool = True, **envelope: Any) -> Receipt:
        made = Envelope(exchange, key, durable=durable, **envelope)
        return self.broker.engine.publish(made, list(contents), self.broker.engine.route(self.vhost, made))

    def publication(
        self, key: str, *contents: bytes, exchange: str = "", durable: bool = True, mandatory: bool = False
    ) -> Publication:
        """Return a publication for a branch."""
        made = Envelope(exchange, key, durable=durable)
        return Publication(made, list(contents), self.broker.engine.route(self.vhost, made), mandatory)

    def consume(
        self,
        queue: Queue,
        sink: Sink | None = None,
        *,
        credit: int = UNLIMITED,
        by: Replenishment = Replenishment.SETTLEMENT,
        **options: Any,
    ) -> tuple[Consumer, Sink]:
        sink = sink or Sink()
        return self.broker.engine.subscribe(queue, sink, credit=Credit(credit, by), **options), sink

    def begin(self, limits: Limits | None = None) -> TransactionBranch:
        return self.broker.transactions.begin(limits or Limits(), Watch(self.broker.engine.deadlines, 0, lambda: None))

    # -- what tests look at

    def ready(self, queue: Queue) -> list[Held]:
        """Return the ready messages of a queue in order, without changing it."""
        entries: list[Entry] = []
        while len(queue.order):
            entries += queue.order.take(1000)
        queue.order.put_back(entries)
        return [(entry.position, entry.content, entry.deliveries > 0) for entry in entries]

    def contents(self, name: str = "q") -> list[bytes]:
        return [content for _, content, _ in self.ready(self.vhost.queue(name))]

    def records(self, *kinds: Kind) -> list[bytes]:
        """Return the payloads of all records of these kinds, as a restart reads them."""
        self.sync()
        return [payload for _, kind, payload in self.restart().replayed if kind in kinds]

    def live(self) -> int:
        """Return the number of messages that the journal keeps."""
        return sum(segment.live for segment in self.journal._table)


def taken(site: Site, queue: Queue, credit: int = UNLIMITED) -> tuple[Consumer, list[Entry]]:
    """Deliver everything in a queue to a consumer that gets no further messages."""
    consumer, sink = site.consume(queue, credit=credit)
    site.turn()
    site.broker.engine.unsubscribe(consumer)
    return consumer, [entry for _, entry in sink.got]


def dead_lettering(site: Site, **more: object) -> tuple[Queue, Queue]:
    """Declare a queue, and the queue for its dead letters."""
    arguments = {f"x-{key.replace('_', '-')}": value for key, value in more.items()}
    dead = site.queue("dead")
    return site.queue("q", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead", **arguments}), dead
