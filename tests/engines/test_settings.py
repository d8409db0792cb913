"""Topics and streams with settings that may lose confirmed messages are refused, and found while they are in use."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from typing import Any

import nats
import pytest
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from escrowmq.replica.engines import SettingsRefused, SettingsWatch, open_log
from tests.engines.kafka_nodes import KafkaNodes
from tests.engines.nats_nodes import NatsNodes
from tests.engines.nodes import wait_until

TIMEOUT = 30.0
_names = count(1)


@pytest.fixture(scope="module")
def jetstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsNodes]:
    if (why := NatsNodes.missing()) is not None:
        pytest.skip(why)
    with NatsNodes(tmp_path_factory.mktemp("nats"), 1) as nodes:
        yield nodes


def ask(nodes: NatsNodes, subject: str, request: dict[str, Any]) -> dict[str, Any]:
    """Call JetStream's API, as an administrator's tool does."""

    async def call() -> dict[str, Any]:
        client = await nats.connect(f"nats://127.0.0.1:{nodes.ports[0]}")
        try:
            reply = await client.request(f"$JS.API.{subject}", json.dumps(request).encode(), timeout=TIMEOUT)
        finally:
            await client.close()
        answer: dict[str, Any] = json.loads(reply.data)
        assert "error" not in answer, answer
        return answer

    return asyncio.run(call())


def refusal(url: str) -> str:
    with pytest.raises(SettingsRefused) as raised:
        open_log(url, timeout=TIMEOUT)
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize(
    ("name", "found", "needed"),
    [
        ("retention.ms", "604800000", "-1"),
        ("retention.bytes", "1073741824", "-1"),
        ("cleanup.policy", "compact", "delete"),
        ("unclean.leader.election.enable", "true", "false"),
        ("max.message.bytes", "500000", "1000000 or more"),
    ],
)
def test_a_wrong_topic_is_refused(kafka: KafkaNodes, name: str, found: str, needed: str) -> None:
    topic = f"wrong-{next(_names)}"
    right = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}
    new = NewTopic(topic, 1, 1, config={**right, name: found})
    kafka.admin.create_topics([new])[topic].result(TIMEOUT)
    assert refusal(kafka.url(topic)) == f"the topic {topic} has {name} = {found}, and replication needs {needed}"


def test_a_topic_with_two_partitions_is_refused(kafka: KafkaNodes) -> None:
    topic = f"wrong-{next(_names)}"
    kafka.admin.create_topics([NewTopic(topic, 2, 1, config={"retention.ms": "-1"})])[topic].result(TIMEOUT)
    assert refusal(kafka.url(topic)) == f"the topic {topic} has partitions = 2, and replication needs 1"


def test_a_topic_with_too_few_replicas_is_refused(kafka: KafkaNodes) -> None:
    topic = f"wrong-{next(_names)}"
    kafka.admin.create_topics([NewTopic(topic, 1, 1, config={"retention.ms": "-1"})])[topic].result(TIMEOUT)
    told = refusal(kafka.url(topic).replace("replicas=1", "replicas=3"))
    assert f"the topic {topic} has replication.factor = 1, and replication needs 3 or more" in told
    assert f"the topic {topic} has min.insync.replicas = 1, and replication needs 2 or more" in told


def test_syncing_each_append_is_demanded_if_the_url_says_so(kafka: KafkaNodes) -> None:
    topic = f"flush-{next(_names)}"
    open_log(kafka.url(topic), timeout=TIMEOUT).close()
    assert "has flush.messages = 9223372036854775807, and replication needs 1" in refusal(kafka.url(topic, "&flush=1"))
    other = f"flush-{next(_names)}"
    open_log(kafka.url(other, "&flush=1"), timeout=TIMEOUT).close()
    resource = ConfigResource(ResourceType.TOPIC, other)
    settings = kafka.admin.describe_configs([resource])[resource].result(TIMEOUT)
    assert settings["flush.messages"].value == "1"


@pytest.mark.parametrize(
    ("name", "found", "needed"),
    [
        ("max_age", 3_600_000_000_000, "0"),
        ("max_bytes", 1_000_000_000, "-1"),
        ("max_msgs", 1_000_000, "-1"),
        ("max_msgs_per_subject", 1_000_000, "-1"),
        ("storage", "memory", "file"),
        ("discard", "old", "new"),
        ("retention", "interest", "limits"),
        ("allow_direct", False, "true"),
        ("deny_delete", False, "true"),
        ("max_msg_size", 500_000, "1000000 or more"),
        ("allow_rollup_hdrs", True, "none"),
    ],
)
def test_a_wrong_stream_is_refused(jetstream: NatsNodes, name: str, found: object, needed: str) -> None:
    stream = f"wrong-{next(_names)}"
    right = {"discard": "new", "deny_delete": True, "allow_direct": True}
    settings = {"name": stream, "subjects": [f"escrowmq.{stream}"], "storage": "file", **right, name: found}
    ask(jetstream, f"STREAM.CREATE.{stream}", settings)
    shown = str(found).lower()
    assert refusal(jetstream.url(stream)) == f"the stream {stream} has {name} = {shown}, and replication needs {needed}"


def test_a_stream_with_further_subjects_is_refused(jetstream: NatsNodes) -> None:
    stream = f"wrong-{next(_names)}"
    right = {"discard": "new", "deny_delete": True, "allow_direct": True}
    subjects = [f"escrowmq.{stream}", f"other.{stream}"]
    ask(jetstream, f"STREAM.CREATE.{stream}", {"name": stream, "subjects": subjects, "storage": "file", **right})
    assert f"the stream {stream} has subjects = " in refusal(jetstream.url(stream))


@pytest.fixture(params=["kafka", "jetstream"])
def changing(request: pytest.FixtureRequest) -> tuple[str, str, Callable[[str], None]]:
    """Return the URL of a log, a setting, and what changes it."""
    nodes = request.getfixturevalue(request.param)
    name = f"changed-{next(_names)}"

    def change(value: str) -> None:
        if isinstance(nodes, KafkaNodes):
            entry = ConfigEntry("retention.ms", value, incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
            nodes.admin.incremental_alter_configs([resource])[resource].result(TIMEOUT)
        else:
            config = ask(nodes, f"STREAM.INFO.{name}", {})["config"]
            ask(nodes, f"STREAM.UPDATE.{name}", {**config, "max_age": max(int(value), 0) * 1_000_000})

    return nodes.url(name), "retention.ms" if isinstance(nodes, KafkaNodes) else "max_age", change


def test_a_setting_that_is_changed_in_use_is_found(changing: tuple[str, str, Callable[[str], None]]) -> None:
    url, name, change = changing
    with closing(open_log(url, timeout=TIMEOUT)) as log:
        assert log.check() == []
        change("3600000")
        assert [wrong.name for wrong in log.check()] == [name]
        change("-1")
        assert log.check() == []


def test_a_setting_that_is_changed_in_use_is_told_while_brokers_run(
    changing: tuple[str, str, Callable[[str], None]],
) -> None:
    url, name, change = changing
    told: list[list[str]] = []
    with closing(open_log(url, timeout=TIMEOUT)) as log:
        watch = SettingsWatch(log, lambda wrong: told.append([each.name for each in wrong]), interval=0.05)
        try:
            change("3600000")
            wait_until(lambda: told == [[name]], "the alarm")
            change("-1")
            wait_until(lambda: told == [[name], []], "the end of the alarm")
        finally:
            watch.stop()


@pytest.mark.parametrize("engine", ["kafka", "jetstream"])
def test_one_node_is_not_taken_for_three(engine: str, request: pytest.FixtureRequest) -> None:
    nodes = request.getfixturevalue(engine)
    url = nodes.url(f"alone-{next(_names)}").replace("replicas=1", "replicas=3")
    with pytest.raises(OSError, match=r"with 3 replicas cannot be created on .* such as \?replicas=1$"):
        open_log(url, timeout=TIMEOUT)


def test_a_wrong_password_is_told(tmp_path_factory: pytest.TempPathFactory) -> None:
    if (why := NatsNodes.missing()) is not None:
        pytest.skip(why)
    login = 'authorization { user: "broker", password: "right" }\n'
    with NatsNodes(tmp_path_factory.mktemp("login"), 1, further=login) as nodes:
        open_log(nodes.url().replace("nats://", "nats://broker:right@"), timeout=TIMEOUT).close()
        with pytest.raises(OSError, match=r"cannot be reached: .*[Aa]uthorization") as raised:
            open_log(nodes.url().replace("nats://", "nats://broker:wrong@"), timeout=3.0)
        assert "wrong" not in str(raised.value)
