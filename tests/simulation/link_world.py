"""Exactly-once links in a simulated world: producers, consumers, a rival, and a broker that crashes.

Producers send numbered messages to one queue, some of them in transactions, and use two delivery tags in turn. A
connection may have its link stolen while its last discharge is still on its way to the broker. Consumers and a rival
without a link receive the messages. Some messages are delayed, and each consumer selects messages by their number.
Connections are lost, links are detached and stolen, and the broker is killed at any step. In the end every message must
have been processed exactly once, none before it was due or by a consumer that does not select it, and before each crash
everything visible must have been on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from escrowmq.core.branches.branch import Publication
from escrowmq.core.broker import Broker
from escrowmq.core.conditions import BrokerError
from escrowmq.core.engine import Receipt
from escrowmq.core.messages.entry import Entry
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.ports import ReceiverOrigin
from escrowmq.core.queues.consumer import Consumer
from escrowmq.core.queues.credit import Credit, Replenishment
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.queues.queue import Queue
from escrowmq.core.termini.fresh import FreshContents
from escrowmq.core.termini.loan import Loan
from escrowmq.core.termini.tags import delivery_tag
from escrowmq.core.termini.terminus import (
    Durability,
    ExpiryPolicy,
    LinkRole,
    TerminusInput,
    TerminusKey,
    TerminusSettings,
)
from tests.simulation.faulty_world import TROUBLE, FaultyWorld
from tests.simulation.ledger import Violation
from tests.simulation.link_clients import ConsumerClient, Frame, Known, ProducerClient, Wire
from tests.simulation.link_transactions import ProducerConnection
from tests.simulation.steps import Step

WEIGHTS: Final[dict[str, int]] = {
    "send": 40,
    "settle": 30,
    "arrive": 80,
    "hear": 80,
    "process": 30,
    "credit": 15,
    "rival": 4,
    "time": 15,
    "turn": 40,
    "sync": 20,
    "attach": 24,
    "drop": 6,
    "detach": 4,
    "crash": 8,
    "crash in sync": 3,
    "snapshot": 2,
    "compact": 2,
    **TROUBLE,
}
TRANSACTIONS: Final[dict[str, int]] = {
    "send": 60,
    "settle": 30,
    "arrive": 100,
    "hear": 100,
    "process": 5,
    "turn": 10,
    "sync": 30,
    "attach": 20,
    "drop": 2,
    "detach": 2,
    "crash": 1,
    "crash in sync": 1,
    "declare": 30,
    "discharge": 25,
    "control": 60,
    "late": 10,
    **TROUBLE,
}
"""The frequencies of steps in a world whose producers post in transactions."""
FAILING: Final[dict[str, int]] = {
    **WEIGHTS,
    "crash": 1,
    "crash in sync": 1,
    "drop": 12,
    "credit": 30,
    "append refused in": 10,
    "reads fail": 20,
    "reads succeed": 10,
}
"""The frequencies of steps in a world whose disk often refuses records and reads."""
PRODUCERS: Final = 2
CONSUMERS: Final = 2
ROUNDS: Final = 200
_SETTINGS: Final = TerminusSettings(Durability.UNSETTLED_STATE, ExpiryPolicy.NEVER, second=True)
_ENVELOPE: Final = Envelope("", "q", durable=True)


def delay_of(serial: int) -> int:
    """Return the delay of a message in milliseconds; 0 for most."""
    return 0 if serial % 4 else 100 * (1 + serial % 3)


def selects(who: int, serial: int) -> bool:
    """Return whether a consumer selects a message. Each message is selected by at least one consumer."""
    return serial % 6 != who % 2


class Numbers:
    """The format of the messages: their content is a number, which says how long they are delayed."""

    keyed = False

    def annotated(self, content: bytes, annotations: Mapping[str, bytes]) -> bytes:
        raise AssertionError("nobody annotates its messages")

    def headers(self, envelope: Envelope, content: bytes) -> Mapping[str, Any]:
        return {"x-delay": delay_of(int(content))}

    def single_out(self, envelope: Envelope, content: bytes) -> tuple[Envelope, bytes]:
        return envelope, content


class LinkSide:
    """The broker's side of one attached link: its loan, and the frames that wait for a sync."""

    def __init__(self, world: LinkWorld, client: ProducerClient | ConsumerClient, key: TerminusKey) -> None:
        self.world = world
        self.writable = True
        self.stolen_at = 0
        self.client = client
        self.wire = client.wire = Wire()
        self.waiting: list[tuple[int, Callable[[], None]]] = []
        self.consumer: Consumer | None = None
        attach = world.site.broker.termini.attach
        self.loan: Loan = attach(key, _SETTINGS, self, TerminusInput.RESUME, user="u")

    def after(self, lsn: int, act: Callable[[], None]) -> None:
        """Do something once the log is synced up to `lsn`, after everything that waits already."""
        self.waiting.append((lsn, act))
        self.synced(self.world.site.journal.synced_lsn)

    def synced(self, lsn: int) -> None:
        """Let everything leave that has waited for this sync, in order."""
        while self.waiting and self.waiting[0][0] <= lsn:
            self.waiting.pop(0)[1]()

    def tell(self, lsn: int, *frames: Frame) -> None:
        """Send frames once the log is synced up to `lsn`."""
        self.after(lsn, lambda: self.wire.to_client.extend(frames))

    # -- as a borrower and a receiver

    def stolen(self) -> None:
        self.stolen_at = self.world.step
        self.waiting.clear()

    def relieved(self, text: str, *, closed: bool) -> None:
        if closed:
            self.loan.close()
        else:
            self.loan.detach()

    def deleted(self) -> None:
        raise Violation("a terminus that never expires was ended")

    def deliver(self, consumer: Consumer, entries: list[Entry]) -> None:
        if self.stolen_at:
            raise Violation(f"a link that was stolen at step {self.stolen_at} delivers {len(entries)} messages")
        for entry in entries:
            self.world.check_due(int(entry.content))
            if not self.chosen(consumer.queue, entry):
                raise Violation(f"message {int(entry.content)} was delivered to a consumer that does not select it")
        first, lsn = self.loan.acquire(consumer, entries)
        ident = consumer.queue.ident
        frames = [
            ("transfer", delivery_tag(ident, entry.position, number), int(entry.content))
            for number, entry in enumerate(entries, first)
        ]
        self.tell(lsn, *frames)

    def chosen(self, queue: Queue, entry: Entry) -> bool:
        """Return whether the client selects a message."""
        found = selects(int(self.loan.terminus.key.link), int(entry.content))
        self.world.count("selected" if found else "passed over")
        return found

    def deliver_each(self, deliveries: list[tuple[Consumer, list[Entry]]]) -> None:
        for consumer, entries in deliveries:
            self.deliver(consumer, entries)

    @property
    def origin(self) -> ReceiverOrigin:
        return ReceiverOrigin("127.0.0.1:1", 1, "guest")

    def stalled(self, consumer: Consumer) -> None: ...

    def drained(self, consumer: Consumer, unused: int) -> None: ...

    def cancelled(self, consumer: Consumer) -> None: ...


def _prepare(broker: Broker, life: int) -> None:
    """Give a broker the content of the world's messages, and little room for fresh ones, so that some are digested."""
    broker.formats[0] = Numbers()
    broker.termini.fresh = FreshContents(200)


class LinkWorld(FaultyWorld):
    """A history of exactly-once links."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, _prepare, resident_limit=1)
        self.step = 0
        self.site.queue()
        self.site.sync()
        self.producers = [ProducerClient() for _ in range(PRODUCERS)]
        self.consumers = [ConsumerClient() for _ in range(CONSUMERS)]
        self.sides: dict[int, LinkSide] = {}  # by number of the client; consumers follow producers
        self.sent = 0
        self.by_rival: list[int] = []
        self.posted: dict[int, int] = {}  # when a message was posted; the earliest time, if it was again
        self.connections: dict[int, ProducerConnection] = {}  # by number of the producer
        self.replaced: list[ProducerConnection] = []  # connections whose client has opened another one
        self._visible: set[int] = set()  # when the last process died

    @property
    def queue(self) -> Queue:
        return self.site.vhost.queue("q")

    def do(self, step: Step) -> None:
        self.step += 1
        super().do(step)

    @property
    def clients(self) -> list[ProducerClient | ConsumerClient]:
        found: list[ProducerClient | ConsumerClient] = []
        found += self.producers
        found += self.consumers
        return found

    def client(self, who: int) -> ProducerClient | ConsumerClient:
        return self.clients[who % (PRODUCERS + CONSUMERS)]

    # -- clients

    def _send(self, step: Step) -> None:
        if self.producers[step.who % PRODUCERS].send(self.sent + 1, step.what):
            self.sent += 1

    def _send_again(self, step: Step) -> None:
        """End the transaction of a producer, and send what it has to send again."""
        producer = self.producers[step.who % PRODUCERS]
        producer.discharge(commit=True)
        if producer.rejected:
            producer.send(0, step.what)

    def _settle(self, step: Step) -> None:
        self.producers[step.who % PRODUCERS].settle(step.what)

    def _process(self, step: Step) -> None:
        self.consumers[step.who % CONSUMERS].process(step.what)

    def _hear(self, step: Step) -> None:
        self.client(step.who).hear()

    def _declare(self, step: Step) -> None:
        self.producers[step.who % PRODUCERS].declare()

    def _discharge(self, step: Step) -> None:
        self.producers[step.who % PRODUCERS].discharge(commit=bool(step.what % 4))

    def _control(self, step: Step) -> None:
        """Let the broker read a discharge, and the client an answer, after all earlier frames of the connection."""
        who = step.who % PRODUCERS
        connection, side = self.connections.get(who), self.sides.get(who)
        if connection is not None and connection.control.to_broker:
            while side is not None and side.wire.to_broker:
                self._arrive(Step("arrive", who, 0, 0))
            self.count(connection.read())
        if side is None or not side.waiting:
            while side is not None and side.wire.to_client:
                self.producers[who].hear()
            self.producers[who].hear_control()

    def _late(self, step: Step) -> None:
        """Let the broker read a discharge of a connection that its client has given up, or learn that it is gone."""
        if self.replaced:
            connection = self.replaced[step.who % len(self.replaced)]
            if step.what % 2 or not connection.read():
                self.replaced.remove(connection)
                connection.lost()

    def _rival(self, step: Step) -> None:
        if self.machine.troubled:
            return  # a process that dies now may have settled a message that nobody got
        with self.machine.calm():
            entry = self.site.broker.engine.get(self.queue, auto_settle=True)
            self._turn(step)
            self._sync(step)
        if entry is not None:
            self.check_due(int(entry.content))
            self.count("taken by the rival")
            self.by_rival.append(int(entry.content))

    # -- the broker receives

    def _arrive(self, step: Step) -> None:
        who = step.who % (PRODUCERS + CONSUMERS)
        side = self.sides.get(who)
        if side is None or not side.wire.to_broker:
            return
        verb, tag, serial = side.wire.to_broker.popleft()
        content = b"%d" % serial
        if verb == "transfer":
            receipt = side.loan.post(_ENVELOPE, [content], [self.target(serial)], [tag])
            side.tell(receipt.lsn, ("accepted", tag, 0))
        elif verb == "resume":
            found = side.loan.resumed(tag, _ENVELOPE, content, [self.target(serial)])
            self.count("resumed: new" if isinstance(found, Receipt) else "resumed: known")
            side.tell(self.site.journal.end_lsn, ("accepted", tag, 0))
        elif verb in {"post", "post again"}:
            self._post(side, self.connections[who], tag, content, again=verb == "post again")
        elif verb == "settle":
            side.loan.forget([tag])
        else:
            number = side.loan.terminus.deliveries.number_of(tag)
            if number is not None:
                side.loan.settle(number, number, Disposition.ACCEPTED)
            side.tell(self.site.broker.termini.record(), ("settled", tag, 0))

    def _post(self, side: LinkSide, connection: ProducerConnection, tag: bytes, content: bytes, *, again: bool) -> None:
        if again and side.loan.recognised(tag, content) is not None:
            self.count("posted before")
        else:
            connection.post(side.loan, Publication(_ENVELOPE, [content], (self.target(int(content)),)), tag)
        side.tell(0, ("accepted", tag, 0))

    def target(self, serial: int) -> Queue:
        """Return the queue for a message: the one in which it waits, if it is delayed."""
        self.posted[serial] = min(self.site.now, self.posted.get(serial, self.site.now))
        held = self.site.broker.engine.delays.hold(self.site.vhost, {"x-delay": delay_of(serial)})
        self.count("delayed" if held is not None else "due at once")
        return held or self.queue

    def check_due(self, serial: int) -> None:
        """Check that a message that is delivered was due."""
        due = self.posted[serial] + delay_of(serial)
        if self.latest < due:
            raise Violation(f"message {serial} was delivered {due - self.latest} ms before it was due")

    def _credit(self, step: Step) -> None:
        side = self.sides.get(PRODUCERS + step.who % CONSUMERS)
        if side is not None and side.consumer is not None and side.loan.current:
            side.consumer.grant(1 + step.what % 3)

    # -- links come and go

    def _attach(self, step: Step) -> None:
        who = step.who % (PRODUCERS + CONSUMERS)
        client = self.client(who)
        if who in self.sides:
            self.count("stolen")
        role = LinkRole.INCOMING if who < PRODUCERS else LinkRole.OUTGOING
        side = self.sides[who] = LinkSide(self, client, TerminusKey("/", "c", str(who), role))
        if isinstance(client, ProducerClient):
            if who in self.connections and step.what % 3 == 0:
                self.replaced.append(self.connections.pop(who))
                client.connection_lost()
            if who not in self.connections:
                self.connections[who] = ProducerConnection(self.site)
                client.control = self.connections[who].control
            self._attach_producer(side, client, self.connections[who])
        else:
            try:
                self._attach_consumer(side, client)
            except BrokerError as error:
                if not self.refused(error):
                    raise
                self._detach(step)

    def _attach_producer(self, side: LinkSide, client: ProducerClient, connection: ProducerConnection) -> None:
        client.ready = False
        for owner in side.loan.terminus.arrivals.owners():
            if owner is not connection:
                self.count("given up")
                owner.give_up("the link was resumed on another connection")
        if side.loan.terminus.arrivals.owners():
            self.count("resumed within a transaction")
        remote = {tag: delivery.accepted for tag, delivery in client.unsettled.items()}
        found = {tag: each is not None for tag, each in side.loan.reconcile(remote, complete=True).items()}
        for tag, known in found.items():
            self.count("claimed" if known and not remote[tag] else "in doubt" if not known else "agreed")
        side.after(side.loan.lsn, lambda: client.resume(found))

    def _attach_consumer(self, side: LinkSide, client: ConsumerClient) -> None:
        tags = {tag: number for number, tag in side.loan.terminus.deliveries.tags()}
        known = dict(client.unsettled)
        side.after(side.loan.lsn, lambda: client.resume(set(tags)))
        for tag, number in tags.items():
            delivery: Known | None = known.get(tag)
            if delivery is not None and delivery.accepted:
                side.loan.settle_tags([tag], Disposition.ACCEPTED)
                self.count("accepted before")
                side.tell(self.site.broker.termini.record(), ("settled", tag, 0))
                continue
            self.count("sent again" if delivery is None else "resumed")
            taken, lsn = side.loan.take_up([number])
            side.tell(lsn, *[("transfer", each.tag, int(each.entry.content)) for each in taken])
        side.consumer = side.loan.subscribe(
            self.queue, side, credit=Credit(0, Replenishment.RECEIVER), selects=side.chosen
        )

    def _drop(self, step: Step) -> None:
        who = step.who % (PRODUCERS + CONSUMERS)
        side = self.sides.pop(who, None)
        if who in self.connections:
            self.connections.pop(who).lost()
            self.producers[who].connection_lost()
        if side is not None:
            side.loan.connection_lost()
            side.client.wire = None

    def _detach(self, step: Step) -> None:
        side = self.sides.pop(step.who % (PRODUCERS + CONSUMERS), None)
        if side is not None:
            side.loan.detach()
            side.client.wire = None

    # -- syncs and crashes

    def synced(self) -> None:
        for side in list(self.sides.values()):
            side.synced(self.site.journal.synced_lsn)
        for connection in self.connections.values():
            connection.synced()

    def dying(self) -> None:
        order, load = self.queue.order, self.site.broker.engine.pager.load
        self._visible = {int(entry.content) for entry in order.in_memory()}
        for backlog in order.backlogs():
            self._visible.update(int(content) for reference in backlog for content in load(reference).contents)

    def restarted(self) -> None:
        self.sides.clear()
        self.connections.clear()
        self.replaced.clear()
        for client in self.clients:
            client.wire = None
            if isinstance(client, ProducerClient):
                client.connection_lost()
        # A crash may undo the step out of the queue of delayed messages, which is taken again then.
        lost = {serial for serial in self._visible - self.kept() if not delay_of(serial)}
        if lost:
            raise Violation(f"messages {sorted(lost)} were visible, and the crash lost them")

    def kept(self) -> set[int]:
        """Return the messages on the queue, ready or locked for a link."""
        load = self.site.broker.engine.pager.load
        locked = [
            content
            for terminus in self.site.broker.termini.by_key.values()
            for piece in terminus.deliveries.locks.pieces()
            for content in load(piece.reference).contents
        ]
        return {int(content) for content in [*self.site.contents(), *locked]}

    # -- the end

    def finish(self) -> None:
        """Let every client finish its work without trouble. Then each message must have been processed once."""
        while self.replaced:
            self.do(Step("late", 0, 1, 0))
        everybody = range(PRODUCERS + CONSUMERS)
        for who in everybody:
            self.do(Step("attach", who, 0, 0))
        for _ in range(ROUNDS):
            for who in everybody:
                for kind in ("control", "send again", "settle", "process", "credit", "hear"):
                    self.do(Step(kind, who, 0, 0))
                self.do(Step("arrive", who, 0, 0))
            self.do(Step("time", 0, 0, 0))
            self.do(Step("turn", 0, 0, 0))
            self.do(Step("sync", 0, 0, 0))
            if self._is_done():
                break
        processed = sorted([*self.by_rival, *(serial for each in self.consumers for serial in each.processed)])
        expected = list(range(1, self.sent + 1))
        if processed != expected:
            twice = sorted({serial for serial in processed if processed.count(serial) > 1})
            lost = sorted(set(expected) - set(processed))
            raise Violation(f"processed more than once: {twice}; never processed: {lost}")
        self.ledger.events["messages"] = self.sent

    def _is_done(self) -> bool:
        waiting = self.site.vhost.hidden.get("amq.delayed")
        return (
            not any(client.unsettled for client in self.clients)
            and not any(producer.rejected or producer.transaction for producer in self.producers)
            and not (waiting is not None and waiting.ready)
            and not self.site.contents()
            and not self.queue.unsettled
        )


class PostingWorld(LinkWorld):
    """A history of exactly-once links whose producers post in transactions. Only the frequencies of steps differ."""


class FailingWorld(LinkWorld):
    """A history of exactly-once links on a disk that often fails. Only the frequencies of steps differ."""
