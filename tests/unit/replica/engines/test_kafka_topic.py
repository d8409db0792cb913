"""The topic of a log on Kafka, with a scripted engine."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from escrowmq.replica.engines.address import EngineAddress
from escrowmq.replica.engines.kafka_topic import KafkaTopic


class ScriptedAdmin:
    """Answers questions about the topic and its settings in turn."""

    def __init__(self, *answers: int | dict[str, str]) -> None:
        self._answers: Iterator[int | dict[str, str]] = iter(answers)

    def list_topics(self, name: str, **_: object) -> SimpleNamespace:
        answer = next(self._answers)
        error = KafkaError(answer) if isinstance(answer, int) else None
        return SimpleNamespace(topics={name: SimpleNamespace(error=error, partitions={})})

    def poll(self, _: float) -> int:
        return 0

    def describe_configs(self, resources: list[Any], **_: object) -> dict[Any, Future[Any]]:
        answer, future = next(self._answers), Future[Any]()
        if isinstance(answer, int):
            future.set_exception(KafkaException(KafkaError(answer)))
        else:
            future.set_result({name: SimpleNamespace(value=value) for name, value in answer.items()})
        return {resources[0]: future}


def topic(*answers: int | dict[str, str], seconds: float = 5.0) -> KafkaTopic:
    config = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
    topic = KafkaTopic(EngineAddress.parse("kafka://127.0.0.1:1/journal"), config, seconds)
    topic._admin = ScriptedAdmin(*answers)  # type: ignore[assignment]
    return topic


def test_a_node_that_does_not_know_a_new_topic_yet_is_asked_again() -> None:
    settings = {"cleanup.policy": "delete"}
    assert topic(KafkaError.UNKNOWN_TOPIC_OR_PART, settings)._settings() == settings


def test_a_topic_that_one_node_does_not_know_yet_is_not_missing() -> None:
    settings = {"max.message.bytes": "2000000", "min.insync.replicas": "2"}
    found = topic(KafkaError.UNKNOWN_TOPIC_OR_PART, {}, settings).check()
    assert "topic" not in {each.name for each in found}


def test_a_topic_that_no_node_knows_is_missing() -> None:
    unknown = (KafkaError.UNKNOWN_TOPIC_OR_PART for _ in range(1000))
    assert [(each.name, each.found) for each in topic(*unknown, seconds=0.3).check()] == [("topic", "none")]


def test_a_refusal_to_show_settings_is_not_repeated() -> None:
    with pytest.raises(ConnectionError, match="does not tell the settings"):
        topic(KafkaError.TOPIC_AUTHORIZATION_FAILED)._settings()
