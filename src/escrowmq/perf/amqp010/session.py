"""The broker's side of a run over AMQP 0-10: declare, connect, delete."""

from __future__ import annotations

from typing import Any, Final

from escrowmq.perf.amqp010.connection import SessionConnection, SessionNumbers
from escrowmq.perf.amqp010.consumer import CHANNEL, WindowConsumer
from escrowmq.perf.amqp010.encoding import transfer_block
from escrowmq.perf.amqp010.producer import SessionsProducer
from escrowmq.perf.amqp010.publishers import (
    AnsweredPublisher,
    CommittingPublisher,
    SessionBranchPublisher,
    SessionPublisher,
)
from escrowmq.perf.amqp091.encoding import messages_of
from escrowmq.perf.errors import PerfError
from escrowmq.perf.layout import Layout, layout_of, routing_keys
from escrowmq.perf.peer import Consumer, Producer
from escrowmq.perf.sampling import PublishedContents
from escrowmq.perf.totals import Totals
from escrowmq.perf.url import Target
from escrowmq.perf.workload import EXPLICIT, Workload
from escrowmq.wire.amqp010.codec.spec import (
    DtxSelect,
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    QueueDeclare,
    QueueDelete,
    QueueQuery,
    TxSelect,
)

_CALL_TIMEOUT: Final = 20.0
_DELETE_TIMEOUT: Final = 120.0
"""Seconds to wait for an answer. A broker may need long to delete a queue of millions."""


def open_session(target: Target, workload: Workload, totals: Totals) -> Amqp010Session:
    """Connect to the broker. Raises PerfError if it cannot be reached or refuses the connection."""
    control = SessionConnection(target, _CALL_TIMEOUT)
    try:
        control.attach(CHANNEL)
    except BaseException:
        control.close()
        raise
    return Amqp010Session(control, target, workload, totals)


class Amqp010Session:
    """A control connection for declarations, and the connections of producers and consumers."""

    def __init__(self, control: SessionConnection, target: Target, workload: Workload, totals: Totals) -> None:
        self.product, self.version = control.product, control.version
        self._control = control
        self._target = target
        self._workload = workload
        self._totals = totals
        self._layout: Layout = layout_of(workload)
        self._contents = PublishedContents()
        self._connections: list[SessionConnection] = []
        self._declared = False

    def declare(self) -> int:
        layout, control = self._layout, self._control
        arguments: dict[str, Any] = {**self._workload.arguments}
        if self._workload.priorities:
            arguments["x-max-priority"] = self._workload.priorities
        self._declared = True
        control.calls(CHANNEL, [QueueDeclare(name, durable=True, arguments=arguments) for name in layout.queues])
        if layout.exchange:
            control.call(CHANNEL, ExchangeDeclare(layout.exchange, layout.kind, durable=True))
            control.calls(CHANNEL, [ExchangeBind(queue, layout.exchange, key) for queue, key in layout.bindings])
        depth = self.depth()
        self._contents.enabled = not depth
        return depth

    def depth(self) -> int:
        found = self._control.calls(CHANNEL, [QueueQuery(name) for name in self._layout.queues])
        return sum(int(result.message_count or 0) for result in found)

    def producers(self) -> list[Producer]:
        return [self._producer(number) for number in range(self._workload.producers)]

    def _producer(self, number: int) -> Producer:
        workload = self._workload
        connection = self._connect()
        first = number * workload.channels
        publishers = [self._publisher(connection, n + 1, first + n) for n in range(workload.channels)]
        return SessionsProducer(connection, self._totals, f"producer {number}", publishers)

    def _publisher(self, connection: SessionConnection, channel: int, number: int) -> SessionPublisher:
        workload, layout = self._workload, self._layout
        numbers = connection.attach(channel)
        key_count, keys = routing_keys(layout, workload, number, workload.publishers)
        made = messages_of(workload, key_count, number)
        for message in made:
            self._contents.add(message.message_id, message.correlation_id, message.body)
        explicit = workload.mode == EXPLICIT
        block = transfer_block(
            made,
            channel,
            layout.exchange,
            keys,
            durable=workload.persistent,
            explicit=explicit,
            frame_max=connection.frame_max,
        )
        count, total = workload.count, workload.publishers
        mine = None if count is None else count // total + (number < count % total)
        totals, stamped, size = self._totals, workload.stamped, workload.tx_size
        if workload.xa:
            connection.call(channel, DtxSelect())
            branches = SessionBranchPublisher(channel, block, totals, mine, stamped, size, b"")
            branches.begin(numbers, workload.xa)
            return branches
        if size:
            connection.call(channel, TxSelect())
            committing = CommittingPublisher(channel, block, totals, mine, stamped, size, b"")
            committing.begin(numbers)
            return committing
        if workload.confirms:
            return AnsweredPublisher(channel, block, totals, mine, stamped, workload.window, numbers, explicit=explicit)
        return _plain(SessionPublisher(channel, block, totals, mine, stamped), numbers)

    def consumers(self) -> list[Consumer]:
        if not self._workload.producers:
            self._contents.enabled = False
        return [self._consumer(number) for number in range(self._workload.consumers)]

    def _consumer(self, number: int) -> Consumer:
        workload, names = self._workload, self._layout.queues
        queues = (names[number :: workload.consumers] or [names[number % len(names)]]) * workload.subscriptions
        connection = self._connect()
        connection.attach(CHANNEL)
        return WindowConsumer(
            connection,
            self._totals,
            f"consumer {number}",
            queues,
            self._contents,
            accept_every=workload.ack_every,
            window=workload.prefetch,
            stamped=workload.stamped,
        )

    def _connect(self) -> SessionConnection:
        connection = SessionConnection(self._target, _CALL_TIMEOUT)
        self._connections.append(connection)
        return connection

    def close(self, *, abruptly: bool) -> None:
        for connection in self._connections:
            if abruptly:
                connection.socket.close()
            else:
                connection.close()
        control = self._control
        control.socket.settimeout(_DELETE_TIMEOUT)
        try:
            if self._layout.exchange:
                control.call(CHANNEL, ExchangeDelete(self._layout.exchange))
            if self._declared and not self._workload.keep:
                control.calls(CHANNEL, [QueueDelete(name) for name in self._layout.queues])
        except PerfError:
            pass  # the broker has closed the connection or stopped; the run's own error, if any, reports it
        finally:
            control.close()


def _plain(publisher: SessionPublisher, numbers: SessionNumbers) -> SessionPublisher:
    publisher.numbers = numbers
    return publisher
