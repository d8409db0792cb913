"""The broker's side of a run over AMQP 0-9-1: declare, connect, delete."""

from __future__ import annotations

from struct import unpack_from

from escrowmq.perf.amqp091 import frames
from escrowmq.perf.amqp091.branches import BranchPublisher
from escrowmq.perf.amqp091.connection import Connection
from escrowmq.perf.amqp091.consumer import CountingConsumer
from escrowmq.perf.amqp091.encoding import messages_of, publish_block
from escrowmq.perf.amqp091.getter import Getter
from escrowmq.perf.amqp091.producer import CONFIRMS, DTX, TX, ChannelMode, PublishingProducer
from escrowmq.perf.amqp091.requests import REPLY_TO, Requester, replies
from escrowmq.perf.block import PublishBlock
from escrowmq.perf.errors import PerfError
from escrowmq.perf.layout import Layout, layout_of, routing_keys
from escrowmq.perf.messages import LoadMessage
from escrowmq.perf.peer import Consumer, Producer
from escrowmq.perf.publisher import ConfirmingPublisher, Publisher, TransactingPublisher
from escrowmq.perf.sampling import PublishedContents
from escrowmq.perf.totals import Totals
from escrowmq.perf.url import Target
from escrowmq.perf.workload import Workload

_CALL_TIMEOUT = 20.0
_DELETE_TIMEOUT = 120.0
"""Seconds to wait for an answer. A broker may need long to delete a queue of millions."""


def open_session(target: Target, workload: Workload, totals: Totals) -> Amqp091Session:
    """Connect to the broker. Raises PerfError if it cannot be reached or refuses the connection."""
    control = Connection(target, "escrowmq perf control", _CALL_TIMEOUT)
    try:
        control.call(1, frames.channel_open(1), frames.CHANNEL_OPEN_OK)
    except BaseException:
        control.close()
        raise
    return Amqp091Session(control, target, workload, totals)


class Amqp091Session:
    """A control connection for declarations, and the connections of producers and consumers."""

    def __init__(self, control: Connection, target: Target, workload: Workload, totals: Totals) -> None:
        self.product = control.product
        self.version = control.version
        self._control = control
        self._target = target
        self._workload = workload
        self._totals = totals
        self._layout: Layout = layout_of(workload)
        self._contents = PublishedContents()
        self._connections: list[Connection] = []
        self._declared = False
        self._exchange_declared = False

    @property
    def layout(self) -> Layout:
        """The queues of the load."""
        return self._layout

    def declare(self) -> int:
        layout, control = self._layout, self._control
        priorities = self._workload.priorities
        arguments: dict[str, frames.TableValue] = {**self._workload.arguments}
        if priorities:
            arguments["x-max-priority"] = priorities
        self._declared = True
        requests = [frames.queue_declare(1, name, durable=True, arguments=arguments) for name in layout.queues]
        depth = sum(map(_depth, control.calls(1, requests, frames.QUEUE_DECLARE_OK)))
        if layout.exchange:
            declare = frames.exchange_declare(1, layout.exchange, layout.kind, durable=True)
            control.call(1, declare, frames.EXCHANGE_DECLARE_OK)
            self._exchange_declared = True
            binds = [frames.queue_bind(1, queue, layout.exchange, key) for queue, key in layout.bindings]
            control.calls(1, binds, frames.QUEUE_BIND_OK)
        self._contents.enabled = not depth
        return depth

    def depth(self) -> int:
        requests = [frames.queue_declare(1, name, durable=True, passive=True) for name in self._layout.queues]
        return sum(map(_depth, self._control.calls(1, requests, frames.QUEUE_DECLARE_OK)))

    def producers(self) -> list[Producer]:
        return [self._producer(number) for number in range(self._workload.producers)]

    def _producer(self, number: int) -> Producer:
        workload = self._workload
        label = f"producer {number}"
        connection = self._connect(label)
        if workload.rpc:
            made, block = self._block(connection, 1, number, REPLY_TO)
            window = ConfirmingPublisher(1, block, self._totals, self._count(number), False, workload.rpc)
            requester = Requester(connection, self._totals, label, window)
            requester.prepare([message.correlation_id or "" for message in made])
            return requester
        if workload.channels > connection.channel_max:
            raise PerfError(f"the broker allows {connection.channel_max} channels on a connection")
        first = number * workload.channels
        publishers = [self._publisher(connection, n + 1, first + n) for n in range(workload.channels)]
        producer = PublishingProducer(connection, self._totals, label, publishers)
        producer.prepare(_mode(workload))
        return producer

    def _publisher(self, connection: Connection, channel: int, number: int) -> Publisher:
        workload = self._workload
        _, block = self._block(connection, channel, number)
        count = self._count(number)
        totals, stamped, size = self._totals, workload.stamped, workload.tx_size
        if workload.xa:
            return BranchPublisher(channel, block, totals, count, stamped, size, workload.xa)
        if size:
            return TransactingPublisher(channel, block, totals, count, stamped, size, frames.tx_commit(channel))
        if workload.confirms:
            return ConfirmingPublisher(channel, block, totals, count, stamped, workload.window)
        return Publisher(channel, block, totals, count, stamped)

    def _count(self, number: int) -> int | None:
        """Return the number of messages that the publisher of that number is to publish; None if it is not limited."""
        count, total = self._workload.count, self._workload.publishers
        return None if count is None else count // total + (number < count % total)

    def _block(
        self, connection: Connection, channel: int, number: int, reply_to: str | None = None
    ) -> tuple[list[LoadMessage], PublishBlock]:
        workload, frame_max = self._workload, connection.frame_max
        key_count, keys = routing_keys(self._layout, workload, number, workload.publishers)
        made = messages_of(workload, key_count, number)
        for message in made:
            self._contents.add(message.message_id, message.correlation_id, message.body)
        exchange = self._layout.exchange
        return made, publish_block(made, channel, exchange, keys, workload.persistent, frame_max, reply_to)

    def consumers(self) -> list[Consumer]:
        workload = self._workload
        if not workload.producers:
            self._contents.enabled = False
        return [self._consumer(number) for number in range(workload.consumers)]

    def _consumer(self, number: int) -> Consumer:
        workload, names = self._workload, self._layout.queues
        queues = (names[number :: workload.consumers] or [names[number % len(names)]]) * workload.subscriptions
        label = f"consumer {number}"
        connection = self._connect(label)
        if workload.get:
            getter = Getter(connection, self._totals, label, queues, self._contents, workload.ack_every, workload.get)
            getter.prepare()
            return getter
        consumer = CountingConsumer(
            connection,
            self._totals,
            label,
            queues,
            self._contents,
            workload.ack_every,
            workload.prefetch if workload.ack_every else 0,
            workload.stamped,
            replies(connection.frame_max, workload.size) if workload.rpc else None,
        )
        consumer.prepare()
        return consumer

    def _connect(self, name: str) -> Connection:
        connection = Connection(self._target, f"escrowmq perf {name}", _CALL_TIMEOUT)
        self._connections.append(connection)
        return connection

    def close(self, *, abruptly: bool) -> None:
        for connection in self._connections:
            if abruptly:
                connection.socket.close()
                continue
            connection.socket.setblocking(True)
            connection.socket.settimeout(_CALL_TIMEOUT)
            connection.close()
        with self._control as control:
            control.socket.settimeout(_DELETE_TIMEOUT)
            try:
                if self._exchange_declared:
                    control.call(1, frames.exchange_delete(1, self._layout.exchange), frames.EXCHANGE_DELETE_OK)
                if self._declared and not self._workload.keep:
                    deletes = [frames.queue_delete(1, name) for name in self._layout.queues]
                    control.calls(1, deletes, frames.QUEUE_DELETE_OK)
            except PerfError:
                pass  # the broker has closed the connection or stopped; the run's own error, if any, reports it


def _depth(declare_ok: bytes) -> int:
    """Return the number of messages in the arguments of queue.declare-ok."""
    depth: int = unpack_from(">I", declare_ok, 1 + declare_ok[0])[0]
    return depth


def _mode(workload: Workload) -> ChannelMode | None:
    """Return the mode in which the producers' channels work."""
    if workload.xa:
        return DTX
    if workload.tx_size:
        return TX
    return CONFIRMS if workload.confirms else None
