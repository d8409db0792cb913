"""Brokers for the interop tests: one shared by all tests of a process, and one for tests that kill or configure it."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker import BrokerProcess, running_broker

LIKE_RABBITMQ = 'compatibility.rabbitmq_version = "4.2.0"\n'

logging.getLogger("pika").setLevel(logging.CRITICAL)  # it reports each error that a test provokes


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker shared by all tests of a process. Tests must use unique names, and leave nothing that affects others."""
    with running_broker(tmp_path_factory.mktemp("broker")) as process:
        yield process


@pytest.fixture(scope="session")
def broker_like_rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Like `broker`, but AMQP 1.0 clients are told that it is RabbitMQ."""
    folder = tmp_path_factory.mktemp("rabbitmq")
    config = folder / "broker.toml"
    config.write_text(LIKE_RABBITMQ, encoding="utf-8")
    with running_broker(folder, "--config", str(config)) as process:
        yield process


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Callable[[str], BrokerProcess]]:
    """A function that starts a broker for this test alone: `own_broker(toml)`."""
    started: list[BrokerProcess] = []

    def start(config: str = "") -> BrokerProcess:
        folder = tmp_path / f"broker{len(started)}"
        folder.mkdir()
        file = folder / "broker.toml"
        file.write_text(config, encoding="utf-8")
        started.append(process := running_broker(folder, "--config", str(file)))
        return process

    yield start
    for process in started:
        process.kill()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for queues and exchanges that no other test uses."""
    test: str = request.node.nodeid
    return test.rpartition("/")[2]


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """A function that creates the caller's Celery application. Each test needs a new one, bound to its broker."""
    apps: list[Any] = []

    def load(broker: BrokerProcess, queue: str) -> Any:
        monkeypatch.setenv("ESCROWMQ_TEST_URL", broker.url)
        monkeypatch.setenv("ESCROWMQ_TEST_QUEUE", queue)
        module = importlib.reload(importlib.import_module("tests.interop.celery_app"))
        apps.append(module.app)
        return module

    yield load
    for each in apps:
        if each.backend.result_consumer._consumer is not None:
            each.backend.result_consumer.stop()
        each.close()
