"""Reads entries from a partition of Kafka: those that follow each other with few questions, and others at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from escrowmq.replica.engines.address import EngineAddress
from escrowmq.replica.log import StoredEntry

_PAUSE: Final = 0.1
_ANSWER_SECONDS: Final = 2.0
"""How long one question waits for one of the engine's nodes, before the node that leads is looked up again."""
_FOLLOWING: Final = {"fetch.wait.max.ms": 50, "fetch.min.bytes": 1_000_000, "queued.max.messages.kbytes": 32_768}
"""A node of the engine collects what a follower gets for so long. With an answer to each append, the engine would be
busy with followers for longer than with the append.
"""
_PICKING: Final = {"fetch.wait.max.ms": 5, "fetch.min.bytes": 1, "queued.max.messages.kbytes": 8_192}
"""A node answers further questions on the same connection only after a fetch that waits, so none waits for long."""


_Poll: TypeAlias = Callable[[Consumer, int, int], list[StoredEntry]]


class KafkaReader:
    """Two consumers: one follows the log, the other picks entries and asks where the log ends. Thread-safe."""

    def __init__(self, address: EngineAddress, config: Mapping[str, Any], timeout: float) -> None:
        self.address = address
        self._timeout = timeout
        self._reading = threading.Lock()
        self._follower = self._new_consumer(config, _FOLLOWING)
        self._picker = self._new_consumer(config, _PICKING)
        self._next: int | None = None
        """Where the follower goes on; None if it does not follow."""
        self._picked: int | None = None
        """The position behind the entries that were picked last."""
        self._follows = True

    def _new_consumer(self, config: Mapping[str, Any], fetching: Mapping[str, Any]) -> Consumer:
        return Consumer(
            {
                **config,
                "group.id": f"escrowmq-{self.address.name}",  # needed by the client; no offsets are committed
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_uncommitted",
                "enable.partition.eof": True,
                "check.crcs": True,
                "fetch.message.max.bytes": 8_000_000,
                **fetching,
            }
        )

    def stop_following(self) -> None:
        """Only pick entries from now on. The node that leads writes them itself, and reads but few."""
        with self._reading:
            self._follows, self._next = False, None
            self._follower.unassign()

    def read(self, position: int, most: int) -> list[StoredEntry]:
        """Return entries below the high watermark. See `ReplicatedLog`."""
        return self._read(position, most, self._poll)

    def glance(self, position: int, most: int) -> list[StoredEntry]:
        """Return entries that are there already, if this continues a read. See `ReplicatedLog`."""
        return self._read(position, most, self._fetched if position == self._next else self._poll)

    def _read(self, position: int, most: int, poll: _Poll) -> list[StoredEntry]:
        try:
            return self._read_by(position, most, poll)
        except KafkaException as error:
            raise ConnectionError(f"Kafka at {self.address} cannot be read: {error.args[0].str()}") from None

    def _read_by(self, position: int, most: int, poll: _Poll) -> list[StoredEntry]:
        with self._reading:
            if self._follows and position in (self._next, self._picked):
                if position != self._next:
                    self._go_to(self._follower, position)
                self._next = None  # after an error, the consumer may have passed entries that were not returned
                found = poll(self._follower, position, most)
                self._next = found[-1].position + 1 if found else position
                return found
            self._go_to(self._picker, position)
            try:
                found = self._poll(self._picker, position, most)
            finally:
                self._picker.unassign()
            self._picked = found[-1].position + 1 if found else position
            return found

    def _fetched(self, consumer: Consumer, position: int, most: int) -> list[StoredEntry]:
        return self._entries(consumer, position, consumer.consume(most, timeout=0))

    def _poll(self, consumer: Consumer, position: int, most: int) -> list[StoredEntry]:
        give_up = time.monotonic() + self._timeout
        messages = consumer.consume(most, timeout=0)
        while True:
            found = self._entries(consumer, position, messages)
            if found:
                return found
            if self.watermarks()[1] <= position:
                return []
            if time.monotonic() > give_up:
                raise TimeoutError(f"Kafka at {self.address} does not deliver the entry at {position}")
            first = consumer.poll(_PAUSE)
            messages = [] if first is None else [first, *consumer.consume(most - 1, timeout=0)]

    def _entries(self, consumer: Consumer, position: int, messages: Sequence[Message]) -> list[StoredEntry]:
        found = []
        for message in messages:
            error, data, offset = message.error(), message.value(), message.offset()
            if error is None and offset is not None and offset >= position:
                found.append(StoredEntry(offset, data if isinstance(data, bytes) else b""))
            elif error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET:
                self._go_to(consumer, max(position, self.watermarks()[0]))  # the log begins there now
        return found

    def _go_to(self, consumer: Consumer, place: int) -> None:
        consumer.assign([TopicPartition(self.address.name, 0, place)])

    def watermarks(self) -> tuple[int, int]:
        """Return the offset of the oldest entry, and the high watermark: what is below is on all replicas in sync."""
        give_up = time.monotonic() + self._timeout
        while True:
            try:
                return self._picker.get_watermark_offsets(
                    TopicPartition(self.address.name, 0), timeout=_ANSWER_SECONDS, cached=False
                )
            except KafkaException as error:
                reason = error.args[0].str()
            except RuntimeError as error:  # closed
                raise ConnectionError(f"Kafka at {self.address}: {error}") from None
            if time.monotonic() > give_up:
                raise TimeoutError(f"Kafka at {self.address} does not tell where the log ends: {reason}")
            time.sleep(_PAUSE)

    def close(self) -> None:
        """Disconnect."""
        self._follower.close()
        self._picker.close()
