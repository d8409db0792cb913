"""Stalls by single events that concern very many queues, bindings or consumers."""

from __future__ import annotations

import itertools
import time
from functools import partial

from bench.brokers import Broker
from bench.scenario import Settings
from bench.stalls import Stalls, channel_of
from escrowmq.perf.amqp091 import frames
from escrowmq.perf.amqp091.connection import Connection
from escrowmq.perf.amqp091.content import body_frames, properties, publish_head
from escrowmq.perf.messages import LoadMessage

_OBJECTS = 10_000
_PARTITIONS = 1024
_EXCLUSIVE = b"\x04"
_DURABLE = b"\x02"
_LOSS_SECONDS = 1.0
_BINDINGS = 3000
_HEADERS = 20
_MESSAGES = 200


class ManyObjects(Stalls):
    """Connections with very many objects are lost, a queue with very many bindings is deleted, and so on."""

    def __init__(self) -> None:
        super().__init__(
            "stalls-objects",
            {
                "exclusive": "a connection with 10,000 exclusive queues is lost",
                "consumers": "a connection with 10,000 consumers is lost",
                "bindings": "a queue with 20,000 bindings is deleted",
                "fanout": "one message is published to 10,000 queues",
                "topic": "a topic with 1,024 partitions is declared",
                "topic-deleted": "it is deleted",
            },
        )

    def _measure(self, broker: Broker, settings: Settings) -> None:
        count = max(int(_OBJECTS * settings.scale), 10)
        with channel_of(broker) as connection:
            declares = [_declare(f"exclusive-{number}", _EXCLUSIVE) for number in range(count)]
            connection.calls(1, declares, frames.QUEUE_DECLARE_OK)
            self._watched(broker, "exclusive", lambda: _lose(connection))
        with channel_of(broker) as connection:
            connection.call(1, _declare("consumed", _DURABLE), frames.QUEUE_DECLARE_OK)
            consumes = [frames.basic_consume(1, "consumed", str(number), auto_ack=True) for number in range(count)]
            connection.calls(1, consumes, frames.BASIC_CONSUME_OK)
            self._watched(broker, "consumers", lambda: _lose(connection))
        with channel_of(broker) as connection:
            self._declare_and_delete(broker, connection, count, settings.scale)

    def _declare_and_delete(self, broker: Broker, connection: Connection, count: int, scale: float) -> None:
        binds = [frames.queue_bind(1, "consumed", "amq.direct", str(number)) for number in range(2 * count)]
        connection.calls(1, binds, frames.QUEUE_BIND_OK)
        delete = frames.queue_delete(1, "consumed")
        self._watched(broker, "bindings", lambda: connection.call(1, delete, frames.QUEUE_DELETE_OK))
        names = [f"fanout-{number}" for number in range(count)]
        connection.calls(1, [_declare(name, _DURABLE) for name in names], frames.QUEUE_DECLARE_OK)
        connection.calls(1, [frames.queue_bind(1, name, "amq.fanout") for name in names], frames.QUEUE_BIND_OK)
        connection.call(1, frames.confirm_select(1), frames.CONFIRM_SELECT_OK)
        listed = properties(LoadMessage(b""), delivery_mode=2)
        publish = publish_head(1, "amq.fanout", "", 1, listed) + body_frames(1, b"x", 0)
        self._watched(broker, "fanout", lambda: connection.call(1, publish, frames.BASIC_ACK))
        topic = frames.shortstr("topic") + frames.shortstr("x-partitioned") + _DURABLE
        wanted = frames.table({"x-partitions": max(int(_PARTITIONS * scale), 1)})
        request = frames.method(1, frames.EXCHANGE_DECLARE, b"\0\0" + topic + wanted)
        self._watched(broker, "topic", lambda: connection.call(1, request, frames.EXCHANGE_DECLARE_OK))
        deletion = frames.exchange_delete(1, "topic")
        self._watched(broker, "topic-deleted", lambda: connection.call(1, deletion, frames.EXCHANGE_DELETE_OK))


def _declare(name: str, bits: bytes) -> bytes:
    return frames.method(1, frames.QUEUE_DECLARE, b"\0\0" + frames.shortstr(name) + bits + frames.table({}))


def _lose(connection: Connection) -> None:
    """Cut the connection, and give the broker time to return what it had."""
    connection.socket.close()
    time.sleep(_LOSS_SECONDS)


class ManyBindings(Stalls):
    """Messages are compared with very many bindings of a headers exchange, and match none of them."""

    def __init__(self) -> None:
        super().__init__(
            "stalls-headers",
            {
                "equal": "200 messages meet 3,000 bindings with 20 equal headers",
                "differing": "200 messages meet 3,000 bindings with 15 of 20 headers",
            },
        )

    def _measure(self, broker: Broker, settings: Settings) -> None:
        count = max(int(_BINDINGS * settings.scale), 10)
        names = [f"h{number}" for number in range(_HEADERS)]
        lacking = itertools.islice(itertools.combinations(names[1:], 5), count)
        never = {"never": 1}  # no message has it, so no binding matches
        situations = {
            "equal": ("amq.headers", [dict.fromkeys(names, 1) | never] * count),
            "differing": ("amq.match", [{name: 1 for name in names if name not in some} | never for some in lacking]),
        }
        listed = properties(LoadMessage(b"", headers=dict.fromkeys(names, 1)), delivery_mode=1)
        declare = _declare("compared", _DURABLE)
        with channel_of(broker) as connection:
            connection.call(1, declare, frames.QUEUE_DECLARE_OK)
            for short, (exchange, tables) in situations.items():
                bind = partial(frames.queue_bind, 1, "compared", exchange)
                binds = [bind(str(number), {**table}) for number, table in enumerate(tables)]
                connection.calls(1, binds, frames.QUEUE_BIND_OK)
                publish = publish_head(1, exchange, "", 1, listed) + body_frames(1, b"x", 0)
                # The declaration is answered after the messages that were sent before it.
                request = publish * _MESSAGES + declare
                self._watched(broker, short, partial(connection.call, 1, request, frames.QUEUE_DECLARE_OK))


MANY_OBJECTS: tuple[Stalls, ...] = (ManyObjects(), ManyBindings())
