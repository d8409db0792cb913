"""Consuming by callback, one message at a time or in bulk, and settling deliveries."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from escrowmq.client.channel_base import DEFAULT, ChannelBase, Default, Timeout
from escrowmq.client.deliveries import Callback, Consumer, Inbox, Message
from escrowmq.client.errors import ProgrammingError
from escrowmq.client.incoming import Run
from escrowmq.client.requests import Answer
from escrowmq.client.topology import Arguments
from escrowmq.wire.amqp091 import codes, spec
from escrowmq.wire.amqp091.properties import Properties

if TYPE_CHECKING:
    from escrowmq.client.link import Link

CancelCallback = Callable[[spec.BasicCancel], None]
_ACK: Final = struct.Struct(">BHIIQBB")  # a whole basic.ack
_ACK_SIZE: Final = 13
_ACKS: Final = 4096


class Consuming(ChannelBase):
    """The part of a channel that consumes and settles."""

    def __init__(self, connection: Link, number: int) -> None:
        super().__init__(connection, number)
        self._inbox = Inbox()  # for callbacks
        self._callbacks: dict[str, Callback] = {}
        self._auto: set[str] = set()  # consumers whose deliveries need no acknowledgement
        self._consumers: dict[str, Consumer] = {}
        self._generator: tuple[Consumer, tuple[object, ...]] | None = None
        self._cancelled: list[spec.BasicCancel] = []
        self._on_cancel: list[CancelCallback] = []
        self._tags = 0
        self._stopped = False

    def basic_qos(
        self, prefetch_size: int = 0, prefetch_count: int = 0, global_qos: bool = False, *, timeout: Timeout = DEFAULT
    ) -> Answer[spec.BasicQosOk]:
        """Limit the unsettled deliveries of each consumer that follows, or with `global_qos` of the whole channel."""
        return self.rpc(spec.BasicQos(prefetch_size, prefetch_count, global_qos), timeout=timeout)

    def basic_get(
        self, queue: str, auto_ack: bool = False, *, timeout: Timeout = DEFAULT
    ) -> tuple[spec.BasicGetOk, Properties, bytes] | tuple[None, None, None]:
        """Return one message as method, properties and body, or three times None if the queue is empty."""
        method, content = self.rpc(spec.BasicGet(queue, auto_ack), timeout=timeout)
        if content is None or not isinstance(method, spec.BasicGetOk):
            return None, None, None
        return method, content.properties, content.body

    def basic_consume(
        self,
        queue: str,
        on_message_callback: Callback,
        auto_ack: bool = False,
        exclusive: bool = False,
        consumer_tag: str | None = None,
        arguments: Arguments = None,
        *,
        timeout: Timeout = DEFAULT,
    ) -> str:
        """Have `on_message_callback(channel, method, properties, body)` called for each delivery.

        Returns the consumer tag.

        Callbacks run only in `start_consuming` and `connection.process_data_events`.
        """
        with self.connection.guard:
            tag = self._new_tag(consumer_tag)
            self._callbacks[tag] = on_message_callback
            if auto_ack:
                self._auto.add(tag)
            self._consume(queue, tag, auto_ack, exclusive, arguments, timeout)
        return tag

    def subscribe(
        self,
        queue: str,
        auto_ack: bool = False,
        exclusive: bool = False,
        consumer_tag: str | None = None,
        arguments: Arguments = None,
        *,
        timeout: Timeout = DEFAULT,
    ) -> Consumer:
        """Return a consumer from which deliveries are fetched in bulk: `consumer.fetch(1000).bodies`."""
        with self.connection.guard:
            tag = self._new_tag(consumer_tag)
            consumer = self._consumers[tag] = Consumer(self, queue, tag, auto_ack)
            self._consume(queue, tag, auto_ack, exclusive, arguments, timeout)
        return consumer

    def consume(
        self,
        queue: str,
        auto_ack: bool = False,
        exclusive: bool = False,
        arguments: Arguments = None,
        inactivity_timeout: float | None = None,
    ) -> Iterator[Message | tuple[None, None, None]]:
        """Yield messages one at a time, without end.

        After each `inactivity_timeout` seconds without a message, yield three times None. The iteration ends when the
        broker cancels the consumer. A loop that was left can be entered again with the same arguments; `cancel()` ends
        the consumer.

        Raises:
            ProgrammingError: `consume` is already active on this channel with other arguments.
        """
        given = (queue, auto_ack, exclusive)
        if self._generator is None:
            self._generator = self.subscribe(queue, auto_ack, exclusive, arguments=arguments), given
        elif self._generator[1] != given:
            raise ProgrammingError(
                "consume is already active on this channel with other arguments; call cancel() first"
            )
        consumer = self._generator[0]
        return self._each(consumer, inactivity_timeout)

    def _each(self, consumer: Consumer, timeout: float | None) -> Iterator[Message | tuple[None, None, None]]:
        while self._generator is not None and self._generator[0] is consumer:
            if not consumer.inbox.count:
                self.wait_for_deliveries(consumer, 1, timeout, forever=timeout is None)
            if consumer.inbox.count:
                yield consumer.inbox.pop()
            elif consumer.cancelled:
                self._generator = None
            else:
                yield None, None, None

    def cancel(self) -> int:
        """End `consume`. Returns the number of unread deliveries, which go back to the queue."""
        if self._generator is None:
            return 0
        consumer = self._generator[0]
        self._generator = None
        count = consumer.inbox.count
        self.basic_cancel(consumer.tag)
        return count

    def basic_cancel(self, consumer_tag: str, *, timeout: Timeout = DEFAULT) -> None:
        """Stop a consumer. Its unread deliveries go back to the queue."""
        with self.connection.guard:
            if consumer_tag not in self._callbacks and consumer_tag not in self._consumers:
                return
            consumer = self._consumers.get(consumer_tag)
            if consumer is None or not consumer.cancelled:
                self.rpc(spec.BasicCancel(consumer_tag), timeout=timeout)
            inbox = self._inbox if consumer is None else consumer.inbox
            unseen = inbox.without(consumer_tag)
            auto = consumer_tag in self._auto if consumer is None else consumer.auto_ack
            self._forget(consumer_tag)
            if not auto and not self.connection.tpc_prepared:
                for tag in unseen:
                    self.send(spec.BasicNack(tag, False, True))

    def start_consuming(self) -> None:
        """Run callbacks until this channel has no consumer left or `stop_consuming` is called."""
        self._stopped = False
        while self._callbacks and not self._stopped:
            self.check_open()
            self.connection.process_data_events(None)

    def stop_consuming(self, consumer_tag: str | None = None) -> None:
        """Stop one consumer, or all consumers with a callback. May be called from a callback."""
        if consumer_tag is None:
            self._stopped = True
        for tag in [consumer_tag] if consumer_tag else list(self._callbacks):
            self.basic_cancel(tag)

    @property
    def consumer_tags(self) -> list[str]:
        """The tags of this channel's consumers."""
        return [*self._callbacks, *self._consumers]

    def add_on_cancel_callback(self, callback: CancelCallback) -> None:
        """Have `process_data_events` call `callback(method)` when the broker cancels a consumer."""
        self._on_cancel.append(callback)

    # -- settling

    def basic_ack(self, delivery_tag: int = 0, multiple: bool = False) -> None:
        """Acknowledge a delivery. With `multiple`, acknowledge all up to this tag; tag 0 means all deliveries."""
        self._settle(spec.BasicAck(delivery_tag, multiple))

    def basic_nack(self, delivery_tag: int = 0, multiple: bool = False, requeue: bool = True) -> None:
        """Refuse a delivery: requeue it, or with `requeue` false have it dead-lettered or dropped.

        `multiple` is as for `basic_ack`.
        """
        self._settle(spec.BasicNack(delivery_tag, multiple, requeue))

    def basic_reject(self, delivery_tag: int = 0, requeue: bool = True) -> None:
        """Refuse one delivery, as `basic_nack` does."""
        self._settle(spec.BasicReject(delivery_tag, requeue))

    def ack_many(self, delivery_tags: Iterable[int]) -> None:
        """Acknowledge each of these delivery tags, with few writes to the socket."""
        with self.connection.guard:
            tags = list(delivery_tags)
            pack, number, index = _ACK.pack, self.channel_number, spec.BasicAck.INDEX
            for at in range(0, len(tags), _ACKS):
                self.check_work("basic.ack")
                frames = [
                    pack(codes.FRAME_METHOD, number, _ACK_SIZE, index, tag, 0, codes.FRAME_END)
                    for tag in tags[at : at + _ACKS]
                ]
                self.connection.send(b"".join(frames))

    def basic_recover(self, requeue: bool = True, *, timeout: Timeout = DEFAULT) -> Answer[spec.BasicRecoverOk]:
        """Have the broker deliver all unsettled deliveries of the channel again."""
        return self.rpc(spec.BasicRecover(requeue), timeout=timeout)

    def _settle(self, method: spec.BasicAck | spec.BasicNack | spec.BasicReject) -> None:
        with self.connection.guard:
            self.check_work(method.NAME)
            self.send(method)

    # -- inside

    def _new_tag(self, wanted: str | None) -> str:
        if wanted is not None:
            if wanted in self.consumer_tags:
                raise ProgrammingError(f"consumer tag {wanted!r} is in use on channel {self.channel_number}")
            return wanted
        self._tags += 1
        return f"ctag{self.channel_number}.{self._tags}"

    def _consume(
        self, queue: str, tag: str, auto_ack: bool, exclusive: bool, arguments: Arguments, timeout: Timeout
    ) -> None:
        # The client chooses the tag, because deliveries may follow consume-ok in the same read.
        method = spec.BasicConsume(queue, tag, False, auto_ack, exclusive, False, dict(arguments or {}))
        try:
            self.rpc(method, timeout=timeout)
        except BaseException:
            self._forget(tag)
            raise

    def _forget(self, tag: str) -> None:
        self._callbacks.pop(tag, None)
        self._consumers.pop(tag, None)
        self._auto.discard(tag)

    def wait_for_deliveries(
        self, consumer: Consumer, least: int, timeout: float | None, *, forever: bool = False
    ) -> None:
        """Wait until a consumer has `least` deliveries or is cancelled.

        `timeout` is in seconds; None stands for the connection's timeout, or with `forever` for no limit.
        """
        with self.connection.guard:
            if consumer.inbox.count >= least or consumer.cancelled:
                return
            self.check_open()
            limit: float | Default | None = DEFAULT if timeout is None and not forever else timeout
            self.connection.wait(
                lambda: consumer.inbox.count >= least or consumer.cancelled or self.error is not None, limit
            )
            if not consumer.inbox.count:
                self.check_open()

    def on_deliveries(self, run: Run) -> None:
        consumer = self._consumers.get(run.deliver.consumer_tag)
        (self._inbox if consumer is None else consumer.inbox).add(run)

    def on_cancel(self, method: spec.BasicCancel) -> None:
        consumer = self._consumers.get(method.consumer_tag)
        if consumer is not None:
            consumer.cancelled = True
        self._cancelled.append(method)

    @property
    def pending(self) -> bool:
        return bool(self._inbox.count or self._cancelled) or super().pending

    def dispatch(self) -> int:
        done = super().dispatch()
        inbox = self._inbox
        for _ in range(inbox.count):  # deliveries that arrive during callbacks wait for the next round
            if not inbox.count or not self.is_open:
                break
            message = inbox.pop()
            callback = self._callbacks.get(message.method.consumer_tag)
            if callback is not None:
                done += 1
                callback(self, *message)
        while self._cancelled:
            method = self._cancelled.pop(0)
            self._callbacks.pop(method.consumer_tag, None)
            for on_cancel in self._on_cancel:
                on_cancel(method)
            done += 1
        return done
