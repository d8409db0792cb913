"""A pika session that writes down, line by line, what a broker answers: one script can be held against two brokers."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable
from typing import Any

import pika
from pika.exceptions import (
    AMQPConnectionError,
    ChannelClosed,
    ChannelClosedByBroker,
    ChannelWrongStateError,
    ConnectionClosedByBroker,
    NackError,
    UnroutableError,
)

Line = str
_PATIENCE = 30.0


class Script:
    """Runs steps on a broker, each on a channel that is opened again when an error closed it; `lines` is the record.

    Names that a broker invents, and times, are written as `*`.
    """

    def __init__(self, name: str, port: int, user: str = "guest", password: str = "guest", vhost: str = "/") -> None:
        self.port = port
        self.queue = f"{name}.q"
        self.dead = f"{name}.dead"
        self.exchange = f"{name}.x"
        self._parameters = pika.ConnectionParameters(
            "127.0.0.1", port, vhost, pika.PlainCredentials(user, password), heartbeat=60, blocked_connection_timeout=30
        )
        self.lines: list[Line] = []
        self._connections: list[Any] = []
        self._connection: Any = None
        self._channel: Any = None

    def connect(self) -> Any:
        """A further connection, closed at the end of the script."""
        connection = pika.BlockingConnection(self._parameters)
        self._connections.append(connection)
        return connection

    @property
    def connection(self) -> Any:
        if self._connection is None or self._connection.is_closed:
            self._connection = self.connect()
        return self._connection

    @property
    def channel(self) -> Any:
        connection = self.connection
        if self._channel is None or self._channel.is_closed or self._channel.connection is not connection:
            self._channel = connection.channel()
        return self._channel

    def fresh(self) -> Any:
        """A channel of its own on the main connection."""
        return self.connection.channel()

    def say(self, what: str, value: object = "") -> None:
        """Write a line of one's own."""
        self.lines.append(f"{what}: {render(value)}")

    def step(self, what: str, call: Callable[[Any], Any]) -> Any:
        """Do something on the channel and write down the answer, or the error with code and text."""
        channel = self.channel
        try:
            result = call(channel)
            if channel.is_open:  # what has no answer of its own may have closed the channel
                channel.basic_qos(prefetch_count=0)
        except (ChannelClosed, ChannelClosedByBroker) as error:
            self.lines.append(f"{what}: channel closed, {error.reply_code} {scrub(error.reply_text)}")
        except ConnectionClosedByBroker as error:
            self.lines.append(f"{what}: connection closed, {error.reply_code} {scrub(error.reply_text)}")
        except (NackError, UnroutableError, ChannelWrongStateError, AMQPConnectionError) as error:
            self.lines.append(f"{what}: {type(error).__name__}")
        else:
            self.lines.append(f"{what}: {render(result)}")
            return result
        return None

    def publish(self, key: str, *bodies: str, exchange: str = "", **properties: Any) -> None:
        """Publish and wait until the broker has taken it."""
        channel = self.fresh()
        channel.confirm_delivery()
        for body in bodies:
            channel.basic_publish(exchange, key, body.encode(), pika.BasicProperties(**properties))
        channel.close()

    def fetch(self, queue: str, *, timeout: float = _PATIENCE) -> tuple[Any, Any, bytes]:
        """One message by basic.get with auto-ack; polls until there is one."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            method, properties, body = self.channel.basic_get(queue, auto_ack=True)
            if method is not None:
                return method, properties, body
            self.connection.sleep(0.02)
        raise AssertionError(f"nothing came to {queue!r} in {timeout} s")

    def drain(self, queue: str) -> list[str]:
        """All bodies that are ready, by basic.get; `!` marks what was redelivered."""
        bodies: list[str] = []
        while True:
            method, _, body = self.channel.basic_get(queue, auto_ack=True)
            if method is None:
                return bodies
            bodies.append(body.decode() + ("!" if method.redelivered else ""))

    def ready(self, queue: str) -> int:
        """How many messages are ready."""
        channel = self.fresh()
        count: int = channel.queue_declare(queue, passive=True).method.message_count
        channel.close()
        return count

    def wait(self, condition: Callable[[], object], what: str, timeout: float = _PATIENCE) -> None:
        """Process what comes in until the condition holds. Raises AssertionError after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < deadline, f"{what} did not come about in {timeout} s"
            self.connection.process_data_events(0.02)

    def close(self) -> None:
        """Delete what a script that failed has left, and close the connections."""
        for connection in self._connections:
            if connection.is_open:
                connection.close()
        with contextlib.closing(self.connect()) as connection:
            for queue in (self.queue, self.dead):
                connection.channel().queue_delete(queue)
            connection.channel().exchange_delete(self.exchange)


def scrub(text: str) -> str:
    """Take out what a broker invents."""
    text = re.sub(r"amq\.gen-[\w-]+", "amq.gen-*", text)
    text = re.sub(r"amq\.rabbitmq\.reply-to\.[^']+", "amq.rabbitmq.reply-to.*", text)
    text = re.sub(r"amq\.ctag-[\w-]+", "amq.ctag-*", text)
    text = " ".join(text.split()) if "\n" in text else text
    return re.sub(r"<\S+?@\S+?>|rabbit@\S+|bench@\S+", "*", text)


def render(value: Any) -> str:
    """A value as a line of text; methods and properties by those of their fields that are set."""
    if isinstance(value, tuple):
        return f"({', '.join(render(part) for part in value)})"
    if isinstance(value, list):
        return f"[{', '.join(render(part) for part in value)}]"
    if isinstance(value, dict):
        parts = (f"{key}={'*' if key == 'time' else render(value[key])}" for key in sorted(value))
        return f"{{{', '.join(parts)}}}"
    if hasattr(value, "method") and hasattr(value, "frame_type"):
        return render(value.method)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(int(value))
    if hasattr(value, "__dict__") and type(value).__module__.startswith("pika"):
        fields = {key: field for key, field in vars(value).items() if field not in (None, "") and field is not False}
        return f"{type(value).__name__}{render(fields)}"
    return scrub(str(value) if not isinstance(value, (str, bytes)) else repr(value))
