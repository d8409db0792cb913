"""Operations that publish a message, and that take messages from a queue."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from escrowmq.admin.authority import Authority, checked_name
from escrowmq.admin.operation import Operation, OperationRefused, Row
from escrowmq.admin.ports import BrokerProcess
from escrowmq.core.access.table import Operation as Right
from escrowmq.core.conditions import BrokerError, Condition, check_growth
from escrowmq.core.engine import Receipt
from escrowmq.core.messages.entry import Entry
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.queues.queue import Queue, Session
from escrowmq.core.queues.taking import Taking

MOST_MESSAGES: Final = 1000
"""The number of messages that one operation takes."""
MOST_BYTES: Final = 16 << 20
"""Bytes of bodies after which it takes no more."""
PROTOCOL: Final = "http"
"""The name under which publishes are counted."""
PIECE: Final = 16
"""Messages that are taken in one turn."""

_DISPOSITIONS: Final = {
    "requeue": Disposition.MODIFIED,
    "accept": Disposition.ACCEPTED,
    "reject": Disposition.REJECTED,
}


class MessageAdmin:
    """The operations by name are in `operations`. A change is on disk when its operation returns."""

    def __init__(self, process: BrokerProcess, authority: Authority) -> None:
        self._process = process
        self._broker = process.broker
        self._authority = authority
        self._session = Session("operator")
        self.operations: Mapping[str, Operation] = {"message.publish": self.publish, "message.get": self.get}

    async def publish(
        self,
        vhost: str,
        exchange: str,
        routing_key: str,
        properties: Mapping[str, Any],
        payload: str,
        payload_encoding: str = "string",
        by: str = "",
    ) -> bool:
        """Publish a message with properties of AMQP 0-9-1. Return whether it was routed to a queue. Raises
        OperationRefused, BrokerError.

        It is counted as a publish of the protocol `http`.
        """
        place, engine = self._authority.vhost(vhost, by), self._broker.engine
        checked_name(routing_key, "routing key")
        envelope = self._process.composed(exchange, routing_key, properties, by)
        door = self._authority.door(place, by)
        if door is not None:
            door.check_publish(exchange, (routing_key, *envelope.extra_keys))
        body = _decoded(payload, payload_encoding)

        def change() -> tuple[bool, Receipt]:
            self._broker.directory.vhost(vhost)
            place.exchange_for_publish(exchange)
            check_growth(engine.scarcity, "another message")
            queues = engine.route(place, envelope, body)
            return bool(queues), engine.publish(envelope, [body], queues, divided=True) if queues else Receipt()

        routed, receipt = await self._process.durably(change)
        traffic = engine.counters.traffic_of(vhost, PROTOCOL)
        traffic.received += 1
        traffic.returned += not routed
        traffic.answered(0 if receipt.refused else 1, 1 if receipt.refused else 0)
        if receipt.refused:
            raise OperationRefused("the message was refused: a queue has reached its limit")
        while not all(placing.done for placing in receipt.placings):
            await self._process.turn()
        if receipt.placings:
            await self._process.durably(lambda: None)
        return routed

    async def get(
        self,
        vhost: str,
        queue: str,
        count: int,
        disposition: str = "requeue",
        encoding: str = "auto",
        truncate: int | None = None,
        by: str = "",
    ) -> list[Row]:
        """Take up to `count` messages from a queue and return them, as clients of AMQP 0-9-1 would get them.

        The messages then return to their places, marked as redelivered (`requeue`), leave the queue (`accept`), or
        become dead letters (`reject`), as `disposition` says. Bodies are cut to `truncate` bytes. Raises
        OperationRefused, BrokerError.
        """
        if not 0 < count <= MOST_MESSAGES:
            raise OperationRefused(f"count is a number from 1 to {MOST_MESSAGES}")
        if encoding not in {"auto", "base64"} or (truncate is not None and truncate < 0):
            raise OperationRefused("encoding is auto or base64, and truncate a number of bytes")
        after = _DISPOSITIONS.get(disposition)
        if after is None:
            raise OperationRefused(f"disposition is one of {', '.join(_DISPOSITIONS)}")
        source = self._queue(vhost, queue, by)
        taking = Taking(self._broker.engine, source, f"operator {by or 'of the command line'}")
        rows: list[Row] = []
        done, size = Disposition.MODIFIED, 0
        try:
            while count > len(rows) and size < MOST_BYTES:
                self._process.begin()
                found = taking.take(min(PIECE, count - len(rows)))
                if not found:
                    break
                left = len(source.order) + len(found)
                rows += [self._row(entry, left - n, encoding, truncate) for n, entry in enumerate(found, 1)]
                size += sum([len(entry.content) for entry in found])
                await self._process.turn()
            done = after
        finally:
            await self._process.durably(lambda: taking.end(done))
        return rows

    def _queue(self, vhost: str, name: str, by: str) -> Queue:
        place = self._authority.vhost(vhost, by)
        self._authority.check(place, by, Right.GET, queue=name)
        queue = place.queue(name)
        queue.check_access(self._session)
        if queue.is_stream:
            raise BrokerError(
                Condition.NOT_IMPLEMENTED, f"messages cannot be taken from queue '{name}', which is a stream"
            )
        return queue

    def _row(self, entry: Entry, left: int, encoding: str, truncate: int | None) -> Row:
        routing_key, properties, body = self._process.delivered(entry.run.envelope, entry.content)
        payload, kind = _encoded(body if truncate is None else body[:truncate], encoding)
        return {
            "payload_bytes": len(body),
            "redelivered": entry.deliveries > 0,
            "exchange": entry.run.envelope.exchange,
            "routing_key": routing_key,
            "message_count": left,
            "properties": properties,
            "payload": payload,
            "payload_encoding": kind,
        }


def _decoded(payload: str, encoding: str) -> bytes:
    try:
        if encoding == "string":
            return payload.encode()
        if encoding == "base64":
            return base64.b64decode(payload, validate=True)
    except ValueError as error:
        raise OperationRefused(f"the payload is no {encoding}: {error}") from error
    raise OperationRefused(f"payload_encoding is string or base64, not {encoding!r}")


def _encoded(body: bytes, encoding: str) -> tuple[str, str]:
    if encoding == "auto":
        try:
            return body.decode(), "string"
        except UnicodeDecodeError:
            pass
    return base64.b64encode(body).decode(), "base64"
