"""Declaring, binding and deleting queues and exchanges. These take effect at once, even in a transaction (TX-9)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from escrowmq.client.channel_base import DEFAULT, ChannelBase, Timeout
from escrowmq.client.requests import Answer
from escrowmq.wire.amqp091 import spec
from escrowmq.wire.amqp091.table import FieldTable, FieldValue

Arguments = Mapping[str, FieldValue] | None


def _table(arguments: Arguments) -> FieldTable:
    return dict(arguments or {})


class Topology(ChannelBase):
    """The part of a channel that manages queues and exchanges.

    Each method returns `(method, None)`, so `queue_declare("").method.queue` is the name that the broker chose. All
    raise ChannelClosed (NotFound, AccessRefused, PreconditionFailed, ResourceLocked) when the broker refuses.
    """

    def queue_declare(
        self,
        queue: str = "",
        passive: bool = False,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Arguments = None,
        *,
        timeout: Timeout = DEFAULT,
    ) -> Answer[spec.QueueDeclareOk]:
        """Declare a queue, or with `passive` check that it exists.

        The answer has `queue`, `message_count` and `consumer_count`.
        """
        return self.rpc(
            spec.QueueDeclare(queue, passive, durable, exclusive, auto_delete, False, _table(arguments)),
            timeout=timeout,
        )

    def queue_bind(
        self,
        queue: str,
        exchange: str,
        routing_key: str | None = None,
        arguments: Arguments = None,
        *,
        timeout: Timeout = DEFAULT,
    ) -> Answer[spec.QueueBindOk]:
        """Bind a queue to an exchange. The routing key defaults to the queue's name."""
        key = queue if routing_key is None else routing_key
        return self.rpc(spec.QueueBind(queue, exchange, key, False, _table(arguments)), timeout=timeout)

    def queue_unbind(
        self,
        queue: str,
        exchange: str = "",
        routing_key: str | None = None,
        arguments: Arguments = None,
        *,
        timeout: Timeout = DEFAULT,
    ) -> Answer[spec.QueueUnbindOk]:
        """Undo `queue_bind`."""
        key = queue if routing_key is None else routing_key
        return self.rpc(spec.QueueUnbind(queue, exchange, key, _table(arguments)), timeout=timeout)

    def queue_purge(self, queue: str, *, timeout: Timeout = DEFAULT) -> Answer[spec.QueuePurgeOk]:
        """Drop the ready messages of a queue. The answer has `message_count`."""
        return self.rpc(spec.QueuePurge(queue), timeout=timeout)

    def queue_delete(
        self, queue: str, if_unused: bool = False, if_empty: bool = False, *, timeout: Timeout = DEFAULT
    ) -> Answer[spec.QueueDeleteOk]:
        """Delete a queue. The answer has `message_count`."""
        return self.rpc(spec.QueueDelete(queue, if_unused, if_empty), timeout=timeout)

    def exchange_declare(
        self,
        exchange: str,
        exchange_type: str = "direct",
        passive: bool = False,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Arguments = None,
        *,
        timeout: Timeout = DEFAULT,
    ) -> Answer[spec.ExchangeDeclareOk]:
        """Declare an exchange, or with `passive` check that it exists."""
        return self.rpc(
            spec.ExchangeDeclare(
                exchange, exchange_type, passive, durable, auto_delete, internal, False, _table(arguments)
            ),
            timeout=timeout,
        )

    def exchange_delete(
        self, exchange: str, if_unused: bool = False, *, timeout: Timeout = DEFAULT
    ) -> Answer[spec.ExchangeDeleteOk]:
        """Delete an exchange and its bindings."""
        return self.rpc(spec.ExchangeDelete(exchange, if_unused), timeout=timeout)

    def exchange_bind(
        self,
        destination: str,
        source: str,
        routing_key: str = "",
        arguments: Arguments = None,
        *,
        timeout: Timeout = DEFAULT,
    ) -> Answer[spec.ExchangeBindOk]:
        """Bind exchange `destination` to exchange `source`, from which it then receives messages."""
        return self.rpc(spec.ExchangeBind(destination, source, routing_key, False, _table(arguments)), timeout=timeout)

    def exchange_unbind(
        self,
        destination: str,
        source: str,
        routing_key: str = "",
        arguments: Arguments = None,
        *,
        timeout: Timeout = DEFAULT,
    ) -> Answer[spec.ExchangeUnbindOk]:
        """Undo `exchange_bind`."""
        return self.rpc(
            spec.ExchangeUnbind(destination, source, routing_key, False, _table(arguments)), timeout=timeout
        )

    def message_count(self, queue: str, *, timeout: Timeout = DEFAULT) -> int:
        """Return the number of ready messages in a queue."""
        count: Any = self.queue_declare(queue, passive=True, timeout=timeout).method.message_count
        return int(count)
