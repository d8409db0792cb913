"""The model of the configuration."""

from __future__ import annotations

import ast

import pytest
from pydantic import ValidationError

from escrowmq.config.config import Config
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
