"""The model of the configuration."""

from __future__ import annotations

import ast

import pytest
from pydantic import ValidationError

from escrowmq.config import Config
from escrowmq.config_replication import ReplicationSection
from tests.unit.keys import KEYS
from tests.unit.sources import modules


def test_the_configuration_does_not_change_later() -> None:
    config = Config()
    with pytest.raises(ValidationError, match="frozen"):
        config.limits.connections = 5


@pytest.mark.parametrize("key", KEYS)
def test_every_key_is_read_by_the_server(key: str) -> None:
    *section, name = key.split(".")
    readers = [module for module in modules().values() if module.layer == "server"]
    read = {node.attr for module in readers for node in ast.walk(module.tree) if isinstance(node, ast.Attribute)}
    assert read.issuperset(section)
    assert name in read or f"{name}_bytes" in read


@pytest.mark.parametrize("url", ["", "amqp://broker-1.example:5672", "amqps://[::1]", "amqp://10.0.0.1"])
def test_the_address_for_clients_of_a_leader_is_a_url(url: str) -> None:
    assert ReplicationSection(advertised_url=url).advertised_url == url


@pytest.mark.parametrize(
    "url",
    ["broker-1", "broker-1:5672", "amqp://", "amqp://h:port", "amqp://[::1", "amqp://u:p@h", "amqp://h\n", "amqp://é"],
)
def test_other_nodes_do_not_get_an_address_that_they_cannot_use(url: str) -> None:
    with pytest.raises(ValidationError, match=r'a URL like "amqp://broker-1\.example:5672" without a login'):
        ReplicationSection(advertised_url=url)
