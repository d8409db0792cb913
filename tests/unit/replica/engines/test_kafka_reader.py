"""What a reader of Kafka does when its client fails; `tests/engines` has the tests against real brokers."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from escrowmq.replica.engines import kafka_reader as module
from escrowmq.replica.engines.address import EngineAddress
from escrowmq.replica.engines.kafka_reader import KafkaReader

ENTRIES = [b"a", b"b", b"c"]


class Entry:
    """A message of Kafka."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def error(self) -> None:
        """There is none."""

    def offset(self) -> int:
        """Return its position."""
        return self._offset

    def value(self) -> bytes:
        """Return its content."""
        return ENTRIES[self._offset]


class Client:
    """A consumer of a partition with `ENTRIES`, which gives one at a time. It fails once where `failing` says so."""

    failing: int | None = None

    def __init__(self, _config: object) -> None:
        self._at = 0

    def assign(self, places: list[TopicPartition]) -> None:
        """Go to a position."""
        self._at = places[0].offset

    def unassign(self) -> None:
        """Do nothing."""

    def consume(self, _most: int, timeout: float) -> list[Entry]:
        """Return what has arrived, which is nothing, or fail."""
        assert timeout == 0
        if self._at == Client.failing:
            Client.failing = None
            raise KafkaException(KafkaError(KafkaError._FAIL, "the client has failed"))
        return []

    def poll(self, _seconds: float) -> Entry:
        """Return the next entry."""
        self._at += 1
        return Entry(self._at - 1)

    def get_watermark_offsets(self, *_: object, **__: object) -> tuple[int, int]:
        """Return where the log begins and ends."""
        return 0, len(ENTRIES)


def test_entries_that_the_client_had_when_it_failed_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Consumer", Client)
    reader: Any = KafkaReader(EngineAddress.parse("kafka://127.0.0.1:1/t"), {}, 1.0)
    assert [each.data for each in reader.read(0, 8)] == [b"a"]
    Client.failing = 2  # when the entry at 1 has come
    with pytest.raises(OSError, match=r"Kafka at .* cannot be read: the client has failed"):
        reader.read(1, 8)
    assert reader.read(1, 8)[0].data == b"b"
    assert reader.read(2, 8)[0].data == b"c"
