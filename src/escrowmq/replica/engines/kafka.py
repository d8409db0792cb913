"""The replicated log as the one partition of a Kafka topic: positions are offsets.

An append is acknowledged by all replicas in sync, of which the topic demands a majority. The producer is idempotent,
which keeps the order of what is in flight when it repeats requests. It is not transactional: that would not fence a
deposed leader more safely than the fold does, and needs a multiple of the time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from escrowmq.replica.engines.address import EngineAddress
from escrowmq.replica.engines.kafka_reader import KafkaReader
from escrowmq.replica.engines.kafka_topic import KafkaTopic
from escrowmq.replica.engines.port import EngineState
from escrowmq.replica.engines.settings import WrongSetting
from escrowmq.replica.errors import AppendUnknown
from escrowmq.replica.log import StoredEntry

_OnDelivery: TypeAlias = Callable[[KafkaError | None, Message | None], None]
_client_log = logging.getLogger(__name__ + ".client")
_client_log.setLevel(logging.CRITICAL)  # the client tells of each attempt to connect; what matters is raised
_PAUSE: Final = 0.1
_REQUEST_MS: Final = 4000
_GRACE_SECONDS: Final = 5.0
"""How long the client may exceed the deadline of an append. It looks for late messages once a second."""
_CONNECTION: Final[dict[str, Any]] = {
    "socket.keepalive.enable": True,
    "socket.nagle.disable": True,
    "socket.timeout.ms": _REQUEST_MS,
    "socket.connection.setup.timeout.ms": 3000,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "topic.metadata.refresh.interval.ms": 2000,  # a frozen node does not answer that it leads no more
    "topic.metadata.refresh.fast.interval.ms": 100,
}
_REFUSED: Final = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._AUTHENTICATION,
    }
)
"""Errors that no repetition mends. The entry was not stored."""


class KafkaLog:
    """A log on Kafka. Several threads may use it; appends are made one after the other, and so are reads."""

    def __init__(self, address: EngineAddress, timeout: float) -> None:
        """Connect, and create the topic unless it exists. Raises OSError."""
        self.address = address
        self._timeout = timeout
        self._config = _config(address)
        self._topic = KafkaTopic(address, self._config, timeout)
        self._topic.open()
        self._appending = threading.Lock()
        self._closed = False
        self._producer: Producer | None = self._new_producer()  # its first append waits a second for an identity
        self._reader = KafkaReader(address, self._config, timeout)

    def append(self, entries: Sequence[bytes]) -> list[int]:
        """Append entries in order, and wait for all replicas in sync. See `ReplicatedLog`."""
        return self.send(entries)()

    def send(self, entries: Sequence[bytes]) -> Callable[[], list[int]]:
        """Begin to append entries. See `ReplicatedLog`."""
        reports: list[tuple[KafkaError | None, int] | None] = [None] * len(entries)
        with self._appending:
            if self._closed:
                raise ConnectionError(f"Kafka at {self.address}: the connection was closed")
            producer = self._producer = self._producer or self._new_producer()
            give_up = time.monotonic() + self._timeout + _GRACE_SECONDS
            for index, entry in enumerate(entries):
                self._produce(producer, entry, partial(_report, reports, index), give_up)
        return partial(self._answers, producer, reports, give_up)

    def _produce(self, producer: Producer, entry: bytes, report: _OnDelivery, give_up: float) -> None:
        while time.monotonic() < give_up:
            try:
                producer.produce(self.address.name, entry, partition=0, on_delivery=report)
            except BufferError:  # the client's queue is full
                producer.poll(_PAUSE)
            except KafkaException as failed:
                report(failed.args[0], None)
                return
            else:
                return

    def _answers(
        self, producer: Producer, reports: Sequence[tuple[KafkaError | None, int] | None], give_up: float
    ) -> list[int]:
        with self._appending:
            while not all(reports) and time.monotonic() < give_up:
                producer.poll(_PAUSE)
            error = next((report[0] for report in reports if report is not None and report[0] is not None), None)
            if error is not None:
                self._failed(error)
            positions = [report[1] for report in reports if report is not None]
            if len(positions) < len(reports) or min(positions, default=0) < 0:
                raise AppendUnknown(f"Kafka at {self.address} did not tell where it stored an append")
            return positions

    def _failed(self, error: KafkaError) -> None:
        """Raise what an error of a delivery stands for."""
        if error.fatal() or error.code() in _REFUSED:
            self._producer = None  # the client does not recover from fatal errors
        if error.code() in _REFUSED:
            raise PermissionError(f"Kafka at {self.address} refuses an append: {error.str()}")
        raise AppendUnknown(f"Kafka at {self.address} did not acknowledge an append: {error.str()}")

    def _new_producer(self) -> Producer:
        return Producer(
            {
                **self._config,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 0,
                "message.timeout.ms": int(self._timeout * 1000),
                "request.timeout.ms": _REQUEST_MS,
                "retry.backoff.ms": 50,
                "retry.backoff.max.ms": 500,
                "message.max.bytes": 1_048_576,
                "queue.buffering.max.kbytes": 65_536,
            }
        )

    def read(self, position: int, most: int) -> list[StoredEntry]:
        """Return entries below the high watermark. See `ReplicatedLog`."""
        return self._reader.read(position, most)

    def glance(self, position: int, most: int) -> list[StoredEntry]:
        """Return entries that the client has fetched. See `ReplicatedLog`."""
        return self._reader.glance(position, most)

    def begin(self) -> int:
        """Return the offset of the oldest entry."""
        return self._reader.watermarks()[0]

    def end(self) -> int:
        """Return the high watermark: what is below it is on all replicas that are in sync."""
        return self._reader.watermarks()[1]

    def trim(self, before: int) -> None:
        """Delete the entries before a position."""
        self._topic.trim(before)

    def approach(self) -> None:
        """Read no more than is needed. Kafka's clients append at the node that leads anyway. See `EngineLog`."""
        self._reader.stop_following()

    def check(self) -> list[WrongSetting]:
        """Return the settings of the topic that are wrong now."""
        return self._topic.check()

    def state(self) -> EngineState:
        """Ask for leader and replicas."""
        return self._topic.state()

    def close(self) -> None:
        """Disconnect."""
        with self._appending:
            self._closed = True
            if self._producer is not None:
                self._producer.purge()
                self._producer = None
        self._reader.close()


def check_options(address: EngineAddress) -> None:
    """Raise ValueError with one line if the client refuses what the URL has for it. Kafka need not be there."""
    try:
        Producer(_config(address))
    except KafkaException as error:
        raise ValueError(error.args[0].str()) from None


def _config(address: EngineAddress) -> dict[str, Any]:
    return {
        "bootstrap.servers": ",".join(address.hosts),
        **_CONNECTION,
        **login(address),
        "logger": _client_log,
    }


def login(address: EngineAddress) -> dict[str, Any]:
    """Return the client's settings for user, password, and those that the URL has for the client."""
    found: dict[str, Any] = {
        name: value for name, value in address.options.items() if name not in ("replicas", "flush")
    }
    if address.user is not None:
        found.setdefault("sasl.mechanism", "SCRAM-SHA-512")
        found.setdefault("security.protocol", "SASL_SSL")
        found |= {"sasl.username": address.user, "sasl.password": address.password or ""}
    return found


def _report(
    reports: list[tuple[KafkaError | None, int] | None], index: int, error: KafkaError | None, message: Message | None
) -> None:
    offset = None if message is None else message.offset()
    reports[index] = (error, -1 if offset is None else offset)
