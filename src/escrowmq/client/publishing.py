"""Publishing one message or many, publisher confirms, and returned messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from escrowmq.client.addressing import Addresses, SomeProperties
from escrowmq.client.bodies import as_body, chunks
from escrowmq.client.channel_base import DEFAULT, ChannelBase, Timeout
from escrowmq.client.confirms import Confirms
from escrowmq.client.encoding import Encoder, Heads, pieces
from escrowmq.client.errors import NackError, ProgrammingError, Returned, UnroutableError
from escrowmq.client.requests import Answer, Content
from escrowmq.wire.amqp091 import spec
from escrowmq.wire.amqp091.properties import NO_PROPERTIES, Properties

if TYPE_CHECKING:
    from escrowmq.client.link import Link

ReturnCallback = Callable[[Any, spec.BasicReturn, Properties, bytes], None]


class Publishing(ChannelBase):
    """The part of a channel that publishes."""

    def __init__(self, connection: Link, number: int) -> None:
        super().__init__(connection, number)
        self._encoder = Encoder(number, connection.frame_max)
        self._confirms: Confirms | None = None
        self._returned: list[Returned] = []
        self._on_return: list[ReturnCallback] = []

    def basic_publish(
        self,
        exchange: str,
        routing_key: str,
        body: bytes | bytearray | memoryview | str,
        properties: SomeProperties = None,
        mandatory: bool = False,
        *,
        wait: bool = True,
        timeout: Timeout = DEFAULT,
    ) -> None:
        """Publish one message. Text is encoded as UTF-8.

        After `confirm_delivery` the call waits for the confirm unless `wait` is false, and then raises the errors of
        `wait_for_confirms`. While the broker blocks the connection, the call waits too.

        Raises:
            ProgrammingError: The message cannot be encoded, or the branch is prepared.
            Timeout: The broker did not accept or confirm the message within `timeout` seconds.
        """
        with self.connection.guard:
            self._may_publish(timeout)
            heads = Addresses(self._encoder, exchange, routing_key, properties, mandatory).next(1)
            assert isinstance(heads, Heads)
            data = self._encoder.one(heads, as_body(body))
            if self._confirms is not None:
                self._confirms.published += 1
            self.connection.send(data, timeout)
            if self._confirms is not None and wait:
                self.wait_for_confirms(timeout=timeout)

    def publish_many(
        self,
        exchange: str,
        routing_key: str | Iterable[str],
        bodies: Any,
        properties: SomeProperties | Iterable[SomeProperties] = None,
        mandatory: bool = False,
        *,
        grouped: bool = False,
        wait: bool = True,
        timeout: Timeout = DEFAULT,
    ) -> int:
        """Publish any number of messages in order, as fast as the broker accepts them. Returns their number.

        `bodies` is an iterable of bytes, buffers or text, or an Arrow array of binaries or strings. `routing_key` and
        `properties` are one value for all messages, or an iterable with one value for each. Memory use is bounded: only
        a small piece of the bodies is encoded at a time.

        `timeout` limits the time in seconds without any progress. Confirms work as in `basic_publish`, but are awaited
        once for all messages. After an error, some of the messages may have been published; use a transaction or a
        branch to rule that out.

        With `grouped`, messages with the same routing key and properties are brought together, a few thousand at a
        time. The broker accepts these several times as fast, but order is kept only among messages that are grouped
        together.
        """
        count = 0
        with self.connection.guard:
            self._may_publish(timeout)
            addresses = Addresses(self._encoder, exchange, routing_key, properties, mandatory)
            for chunk in chunks(bodies):
                heads = addresses.next(len(chunk))
                if grouped and not isinstance(heads, Heads):
                    for head, part in _groups(heads, chunk):
                        self._send(head, part, timeout)
                else:
                    self._send(heads, chunk, timeout)
                count += len(chunk)
            addresses.finish()
            if self._confirms is not None and wait:
                self.wait_for_confirms(timeout=timeout)
        return count

    def publish_block(self, exchange: str, routing_key: str, block: bytes, *, timeout: Timeout = DEFAULT) -> None:
        """Publish a block of messages (`client.blocks`) in the channel's transaction or branch, without waiting.

        The broker closes the channel if the block is malformed, if one of its messages is refused, or if the channel
        has no transaction.

        Raises:
            ProgrammingError: A name is too long, or the branch is prepared.
            Timeout: The broker did not accept the block within `timeout` seconds.
        """
        with self.connection.guard:
            self._may_publish(timeout)
            self.send(spec.EscrowPublish(exchange, routing_key), Content(NO_PROPERTIES, block))
            self.connection.poll()

    def _send(self, heads: Heads | list[Heads], chunk: list[bytes], timeout: Timeout) -> None:
        sizes = list(map(len, chunk))
        for start, end in pieces(sizes):
            self._may_publish(timeout)
            part, part_sizes = (chunk, sizes) if end - start == len(chunk) else (chunk[start:end], sizes[start:end])
            if isinstance(heads, Heads):
                data = self._encoder.alike(heads, part, part_sizes)
            else:
                data = self._encoder.mixed(heads[start:end], part, part_sizes)
            if self._confirms is not None:
                self._confirms.published += len(part)
            self.connection.send(data, timeout)
            self.connection.poll()

    def _may_publish(self, timeout: Timeout) -> None:
        self.check_work("basic.publish")
        if self.connection.blocked is not None or not self.flowing:
            self.connection.wait_for(
                lambda: (self.connection.blocked is None and self.flowing) or self.error is not None,
                timeout,
                "permission to publish" if self.flowing else "permission to publish (channel.flow)",
            )
            self.check_work("basic.publish")

    # -- confirms and returns

    def confirm_delivery(self, *, timeout: Timeout = DEFAULT) -> Answer[spec.ConfirmSelectOk]:
        """Select confirms: the broker confirms every publish from now on, and `basic_publish` waits for that."""
        with self.connection.guard:
            self.check_mode("confirm_delivery")
            answer = self.rpc(spec.ConfirmSelect(), timeout=timeout)
            self.mode = "confirm"
            if self._confirms is None:
                self._confirms = Confirms()
        return answer

    def wait_for_confirms(self, *, timeout: Timeout = DEFAULT) -> None:
        """Wait until the broker has confirmed or refused every publish.

        Raises:
            NackError: The broker refused messages.
            UnroutableError: Mandatory messages were returned, and no return callback is registered.
            ChannelClosed: The channel was closed meanwhile; the outcome of unconfirmed messages is unknown.
            Timeout: The confirms did not arrive within `timeout` seconds.
        """
        with self.connection.guard:
            confirms = self._confirms
            if confirms is None:
                raise ProgrammingError("wait_for_confirms needs confirm_delivery first")
            self.connection.wait_for(
                lambda: confirms.complete or self.error is not None,
                timeout,
                "confirms",
            )
            if not confirms.complete:
                self.check_open()
            nacked = confirms.take_nacked()
            if nacked:
                raise NackError(nacked)
            if self._returned and not self._on_return:
                raise UnroutableError(self.take_returned())

    def add_on_return_callback(self, callback: ReturnCallback) -> None:
        """Have `callback(channel, method, properties, body)` called for mandatory messages that are returned.

        `connection.process_data_events` calls it.
        """
        self._on_return.append(callback)

    def take_returned(self) -> list[Returned]:
        """Return the returned mandatory messages that were not passed to a callback."""
        returned, self._returned = self._returned, []
        return returned

    def on_return(self, returned: Returned) -> None:
        self._returned.append(returned)

    def on_confirm(self, method: spec.BasicAck | spec.BasicNack) -> None:
        if self._confirms is not None:
            refused = isinstance(method, spec.BasicNack)
            self._confirms.settle(method.delivery_tag, multiple=method.multiple, refused=refused)

    @property
    def pending(self) -> bool:
        return bool(self._on_return and self._returned) or super().pending

    def dispatch(self) -> int:
        if not self._on_return or not self._returned:
            return super().dispatch()
        returned = self.take_returned()
        for method, properties, body in returned:
            for callback in self._on_return:
                callback(self, method, properties, body)
        return len(returned) + super().dispatch()


def _groups(heads: list[Heads], bodies: list[bytes]) -> Iterator[tuple[Heads, list[bytes]]]:
    """Yield each head with the bodies that share it, in their order."""
    groups: dict[int, tuple[Heads, list[bytes]]] = {}
    for head, body in zip(heads, bodies, strict=True):
        groups.setdefault(id(head), (head, []))[1].append(body)
    yield from groups.values()
