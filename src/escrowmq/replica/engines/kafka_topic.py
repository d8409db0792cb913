"""The topic of a log on Kafka: creates it, checks its settings, trims it, and describes its replicas."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType, TopicMetadata

from escrowmq.replica.engines.address import EngineAddress
from escrowmq.replica.engines.client_errors import ClientErrors
from escrowmq.replica.engines.port import EngineState
from escrowmq.replica.engines.settings import WrongSetting, at_least, exactly

LARGEST_ENTRY: Final = 1_000_000
"""The bytes of an entry that the topic must take, with what Kafka adds."""
_FIXED: Final = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "unclean.leader.election.enable": "false",
}
_SEGMENT: Final = str(256 * 1024 * 1024)
"""Trimmed entries leave the disk by whole segments."""
_PAUSE: Final = 0.1
_ANSWER_SECONDS: Final = 2.0


class KafkaTopic:
    """A topic with one partition."""

    def __init__(self, address: EngineAddress, config: Mapping[str, Any], timeout: float) -> None:
        self.address = address
        self._timeout = timeout
        self._where = f"the topic {address.name}"
        self._errors = ClientErrors()
        own: dict[str, Any] = {"allow.auto.create.topics": False, "error_cb": self._note}
        self._admin = AdminClient({**config, **own})

    def _note(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # another error says why
            self._errors.note(error.str())

    def open(self) -> None:
        """Create the topic unless it exists, and wait until it has a leader. Raises OSError."""
        metadata = self._metadata(self._timeout)
        if metadata is None:
            self._create()
        give_up = time.monotonic() + self._timeout
        while metadata is None or 0 not in metadata.partitions or metadata.partitions[0].leader < 0:
            if time.monotonic() > give_up:
                raise TimeoutError(f"{self._where} of Kafka at {self.address} has no leader")
            time.sleep(_PAUSE)
            metadata = self._metadata(self._timeout)

    def _create(self) -> None:
        settings = {
            **_FIXED,
            "min.insync.replicas": str(self.address.quorum),
            "max.message.bytes": str(2 * LARGEST_ENTRY),
            "segment.bytes": _SEGMENT,
        }
        if "flush" in self.address.options:
            settings["flush.messages"] = self.address.options["flush"]
        topic = NewTopic(self.address.name, 1, self.address.replicas, config=settings)
        try:
            self._wait(self._admin.create_topics([topic], operation_timeout=self._timeout)[self.address.name])
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # another node was faster
                few = error.args[0].code() == KafkaError.INVALID_REPLICATION_FACTOR
                raise ConnectionError(
                    f"{self._where} with {self.address.replicas} replicas cannot be created on Kafka at "
                    f"{self.address}: {error.args[0].str()}{self.address.too_few if few else ''}"
                ) from None

    def check(self) -> list[WrongSetting]:
        """Return the settings that are wrong now. Raises OSError."""
        metadata = self._known_metadata()
        if metadata is None:
            return [WrongSetting("Kafka", "topic", "none", self.address.name)]
        found = exactly(self._where, "partitions", len(metadata.partitions), 1)
        for partition in metadata.partitions.values():
            found += at_least(self._where, "replication.factor", len(partition.replicas), self.address.replicas)
        settings = self._settings()
        for name, needed in _FIXED.items():
            found += exactly(self._where, name, settings.get(name, ""), needed)
        in_sync = int(settings.get("min.insync.replicas", "0"))
        found += at_least(self._where, "min.insync.replicas", in_sync, self.address.quorum)
        found += at_least(self._where, "max.message.bytes", int(settings["max.message.bytes"]), LARGEST_ENTRY)
        if "flush" in self.address.options:
            flush = self.address.options["flush"]
            found += exactly(self._where, "flush.messages", settings.get("flush.messages", ""), flush)
        return found

    def _settings(self) -> dict[str, str]:
        resource = ConfigResource(ResourceType.TOPIC, self.address.name)
        give_up = time.monotonic() + self._timeout
        while True:
            try:
                entries = self._wait(self._admin.describe_configs([resource], request_timeout=self._timeout)[resource])
                return {name: str(entry.value) for name, entry in entries.items()}
            except KafkaException as error:
                known_later = error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART  # by the node that was asked
                if known_later and time.monotonic() < give_up:
                    time.sleep(_PAUSE)
                    continue
                raise ConnectionError(
                    f"Kafka at {self.address} does not tell the settings of {self._where}: {error.args[0].str()}"
                ) from None

    def trim(self, before: int) -> None:
        """Delete the entries before a position. Raises OSError."""
        place = TopicPartition(self.address.name, 0, before)
        try:
            self._wait(self._admin.delete_records([place], request_timeout=self._timeout)[place])
        except KafkaException as error:
            raise ConnectionError(f"Kafka at {self.address} cannot be trimmed: {error.args[0].str()}") from None

    def state(self) -> EngineState:
        """Describe the replicas. Raises OSError."""
        metadata = self._metadata(self._timeout)
        partition = None if metadata is None else metadata.partitions.get(0)
        if partition is None:
            return EngineState("Kafka", str(self.address), self.address.replicas, 0, "")
        leader = f"node {partition.leader}" if partition.leader >= 0 else ""
        return EngineState("Kafka", str(self.address), len(partition.replicas), len(partition.isrs), leader)

    def _known_metadata(self) -> TopicMetadata | None:
        """Return what Kafka knows of the topic. Some of its nodes learn of a new topic later than others."""
        give_up = time.monotonic() + self._timeout
        while (metadata := self._metadata(self._timeout)) is None and time.monotonic() < give_up:
            time.sleep(_PAUSE)
        return metadata

    def _metadata(self, timeout: float) -> TopicMetadata | None:
        """Return what Kafka knows of the topic, or None if there is none. Raises OSError."""
        give_up = time.monotonic() + timeout
        while True:
            try:
                topic = self._admin.list_topics(self.address.name, timeout=min(timeout, _ANSWER_SECONDS)).topics[
                    self.address.name
                ]
            except KafkaException as error:
                if time.monotonic() < give_up:
                    time.sleep(_PAUSE)
                    continue
                self._admin.poll(0)
                reason = str(self._errors) or error.args[0].str()
                raise ConnectionError(f"Kafka at {self.address} cannot be reached: {reason}") from None
            if topic.error is None or topic.error.code() == KafkaError.LEADER_NOT_AVAILABLE:
                return topic
            if topic.error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
                return None
            raise ConnectionError(f"Kafka at {self.address} refuses {self._where}: {topic.error.str()}")

    def _wait(self, future: Future[Any]) -> Any:
        """Return the result of a request."""
        try:
            return future.result(self._timeout + _ANSWER_SECONDS)
        except TimeoutError:
            raise TimeoutError(f"Kafka at {self.address} did not answer in {self._timeout:g} s") from None
