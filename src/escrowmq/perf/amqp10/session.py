"""The AMQP 1.0 side of a run: queues, connections, and links."""

from __future__ import annotations

import secrets
from typing import Any, Final

from escrowmq.perf.amqp091.encoding import messages_of
from escrowmq.perf.amqp091.session import Amqp091Session
from escrowmq.perf.amqp091.session import open_session as open_declarer
from escrowmq.perf.amqp10.connection import LinkConnection
from escrowmq.perf.amqp10.consumer import ReceivingConsumer
from escrowmq.perf.amqp10.encoding import Counters, TransferBlock
from escrowmq.perf.amqp10.producer import SendingProducer
from escrowmq.perf.amqp10.publishers import DischargingPublisher, LinkPublisher, Permits, SettlingPublisher, declaration
from escrowmq.perf.errors import PerfError
from escrowmq.perf.layout import layout_of
from escrowmq.perf.peer import Consumer, Producer
from escrowmq.perf.sampling import PublishedContents
from escrowmq.perf.totals import Totals
from escrowmq.perf.url import Target
from escrowmq.perf.workload import FIRST, PRESETTLED, SECOND, Workload
from escrowmq.wire.addresses import queue_address
from escrowmq.wire.amqp10.codec.performatives import (
    RECEIVER,
    SENDER,
    SETTLED_MODE,
    UNSETTLED_MODE,
    Attach,
    Disposition,
)
from escrowmq.wire.amqp10.codec.states import Declared
from escrowmq.wire.amqp10.codec.termini import Coordinator, Source
from escrowmq.wire.amqp10.codec.termini import Target as Terminus
from escrowmq.wire.amqp10.codec.types import Symbol

_CALL_TIMEOUT: Final = 20.0
_KEPT_SECONDS: Final = 120  # how long the broker keeps a terminus of a run that was cut
_OUTCOMES: Final = tuple(Symbol(f"amqp:{name}:list") for name in ("accepted", "rejected", "released", "modified"))


def open_session(target: Target, workload: Workload, totals: Totals) -> Amqp10Session:
    """Connect to the broker. Raises PerfError if it cannot be reached or refuses the connection.

    Queues are declared by AMQP 0-9-1 if the broker speaks it on this port; otherwise it must create them by itself.
    """
    probe = LinkConnection(target, f"perf-{secrets.token_hex(4)}", _CALL_TIMEOUT)
    probe.close()
    try:
        declarer = open_declarer(target, workload, totals)
    except PerfError:
        declarer = None
    return Amqp10Session(declarer, probe, target, workload, totals)


class Amqp10Session:
    """The connections of producers and consumers, and a session of AMQP 0-9-1 for declarations if there is one."""

    def __init__(
        self,
        declarer: Amqp091Session | None,
        probe: LinkConnection,
        target: Target,
        workload: Workload,
        totals: Totals,
    ) -> None:
        self.product, self.version = probe.product, probe.version
        self._declarer = declarer
        self._target = target
        self._workload = workload
        self._totals = totals
        self._queues = layout_of(workload).queues if declarer is None else declarer.layout.queues
        self._contents = PublishedContents()
        self._connections: list[LinkConnection] = []

    def declare(self) -> int:
        depth = 0 if self._declarer is None else self._declarer.declare()
        self._contents.enabled = not depth
        return depth

    def depth(self) -> int:
        return 0 if self._declarer is None else self._declarer.depth()

    def producers(self) -> list[Producer]:
        return [self._producer(number) for number in range(self._workload.producers)]

    def _producer(self, number: int) -> Producer:
        workload = self._workload
        label = f"producer {number}"
        connection = self._connect(label)
        made = messages_of(workload, 1, number)
        for message in made:
            self._contents.add(message.message_id, message.correlation_id, message.body)
        mode = workload.mode or (FIRST if workload.confirms or workload.tx_size else PRESETTLED)
        answer = connection.attach(
            Attach(
                label,
                handle=0,
                role=SENDER,
                snd_settle_mode=SETTLED_MODE if mode == PRESETTLED else UNSETTLED_MODE,
                rcv_settle_mode=int(mode == SECOND),
                source=Source(address=label, outcomes=_OUTCOMES),
                target=Terminus(address=self._address(number), **_kept(mode)),
                unsettled={} if mode == SECOND else None,
                initial_delivery_count=0,
            )
        )
        _check_mode(answer, mode)
        counters = Counters()
        transaction = b""
        control = Permits(counters)
        permits = {int(answer.handle): Permits(counters)}
        if workload.tx_size:
            permits[_coordinate(connection)] = control
            control.open(connection.window)
            transaction = _declare(connection, counters, control)
        block = TransferBlock(
            made,
            counters,
            handle=0,
            durable=workload.persistent,
            settled=mode == PRESETTLED,
            frame_max=connection.frame_max,
            transaction=transaction,
        )
        mine = permits[int(answer.handle)] = Permits(counters, block.frames)
        publisher = self._publisher(block, number, mode)
        publisher.permits = mine
        if isinstance(publisher, DischargingPublisher):
            publisher.control, publisher.counters = control, counters
            publisher.begin(transaction)
        return SendingProducer(connection, self._totals, label, publisher, permits)

    def _publisher(self, block: TransferBlock, number: int, mode: str) -> LinkPublisher:
        workload, totals = self._workload, self._totals
        count, total = workload.count, workload.publishers
        mine = None if count is None else count // total + (number < count % total)
        if workload.tx_size:
            return DischargingPublisher(0, block, totals, mine, workload.stamped, workload.tx_size, b"")
        if mode == PRESETTLED:
            return LinkPublisher(0, block, totals, mine, workload.stamped)
        return SettlingPublisher(0, block, totals, mine, workload.stamped, workload.window)

    def consumers(self) -> list[Consumer]:
        if not self._workload.producers:
            self._contents.enabled = False
        return [self._consumer(number) for number in range(self._workload.consumers)]

    def _consumer(self, number: int) -> Consumer:
        workload = self._workload
        label = f"consumer {number}"
        connection = self._connect(label)
        mode = workload.mode or (FIRST if workload.ack_every else PRESETTLED)
        answer = connection.attach(
            Attach(
                label,
                handle=0,
                role=RECEIVER,
                snd_settle_mode=SETTLED_MODE if mode == PRESETTLED else UNSETTLED_MODE,
                rcv_settle_mode=int(mode == SECOND),
                source=Source(address=self._address(number), outcomes=_OUTCOMES, **_kept(mode)),
                target=Terminus(address=label),
                unsettled={} if mode == SECOND else None,
            )
        )
        _check_mode(answer, mode)
        return ReceivingConsumer(
            connection,
            self._totals,
            label,
            self._contents,
            handle=0,
            initial=int(answer.initial_delivery_count or 0),
            accept_every=0 if mode == PRESETTLED else workload.ack_every or 1,
            credit=workload.prefetch or 10_000,
            second=mode == SECOND,
            stamped=workload.stamped,
        )

    def _address(self, number: int) -> str:
        name = self._queues[number % len(self._queues)]
        return name if self._declarer is None else queue_address(name)

    def _connect(self, label: str) -> LinkConnection:
        name = f"perf-{secrets.token_hex(4)}-{label.replace(' ', '-')}"
        connection = LinkConnection(self._target, name, _CALL_TIMEOUT)
        self._connections.append(connection)
        return connection

    def close(self, *, abruptly: bool) -> None:
        for connection in self._connections:
            if abruptly:
                connection.socket.close()
            else:
                connection.close()
        if self._declarer is not None:
            self._declarer.close(abruptly=abruptly)


def _kept(mode: str) -> dict[str, Any]:
    """Return the fields of a terminus that keeps unsettled deliveries, as exactly once needs it."""
    if mode != SECOND:
        return {}
    return {"durable": 2, "expiry_policy": Symbol("connection-close"), "timeout": _KEPT_SECONDS}


def _check_mode(answer: Attach, mode: str) -> None:
    """Raise PerfError if the broker does not grant the mode: the figures would be those of another one."""
    if answer.rcv_settle_mode != int(mode == SECOND):
        raise PerfError(f"the broker does not grant mode {mode}")
    end = answer.target if isinstance(answer.target, Terminus) and answer.role else answer.source
    if mode == SECOND and int(getattr(end, "durable", 0) or 0) < 2:
        raise PerfError("the broker grants no durable terminus, which mode second needs")


def _coordinate(connection: LinkConnection) -> int:
    """Attach the coordinator link with handle 1, and return the broker's handle."""
    answer = connection.attach(
        Attach(
            "transactions",
            handle=1,
            role=SENDER,
            snd_settle_mode=UNSETTLED_MODE,
            source=Source(address="transactions", outcomes=_OUTCOMES),
            target=Coordinator(),
            initial_delivery_count=0,
        )
    )
    return int(answer.handle)


def _declare(connection: LinkConnection, counters: Counters, control: Permits) -> bytes:
    """Declare the first transaction, and return its id."""
    connection.socket.sendall(declaration(counters, control))
    while True:
        found = connection.read()
        if isinstance(found, Disposition):
            if not isinstance(found.state, Declared):
                raise PerfError(f"the broker declared no transaction: {found.state}")
            return bytes(found.state.txn_id)
        connection.early.append(found)
