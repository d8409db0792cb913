"""Engines that the tests of a file share. They start slowly, Kafka above all."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.engines.kafka_nodes import KafkaNodes
from tests.engines.nats_nodes import NatsNodes
from tests.engines.nodes import EngineNodes
from tests.engines.secured_kafka import SecuredKafka

ENGINES: dict[str, type[EngineNodes]] = {"kafka": KafkaNodes, "nats": NatsNodes}
_names = count(1)


@pytest.fixture(scope="session", params=ENGINES)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineNodes]:
    """Three nodes of an engine. Use `nodes`, which has all of them running."""
    kind = ENGINES[request.param]
    if (why := kind.missing()) is not None:
        pytest.skip(f"{kind.engine}: {why}")
    with kind(Path(tmp_path_factory.mktemp(request.param)), 3) as nodes:
        yield nodes


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    """One node of Kafka, for logins and for topics with other settings."""
    if (why := KafkaNodes.missing()) is not None:
        pytest.skip(why)
    with SecuredKafka(tmp_path_factory.mktemp("secured")) as nodes:
        nodes.add_user()
        yield nodes


@pytest.fixture
def nodes(cluster: EngineNodes) -> Iterator[EngineNodes]:
    """Return three nodes that run, and start those again that the test has killed."""
    yield cluster
    for node in range(cluster.count):
        if cluster.running(node):
            cluster.thaw(node)
    cluster.start()


@pytest.fixture
def url(nodes: EngineNodes) -> str:
    """Return the URL of a log that no other test has."""
    return nodes.url(f"journal-{next(_names)}")
