"""The table of rights on the page about security is the table that the broker enforces (SEC-1)."""

from __future__ import annotations

import re

import pytest

from escrowmq.config.limits import LimitsSection
from escrowmq.core.access.table import TABLE, Need, Operation
from escrowmq.wire.amqp091 import spec
from escrowmq.wire.amqp091.operations import OPERATIONS
from escrowmq.wire.amqp10.management.routes import ROUTES
from escrowmq.wire.rocketmq.grpc.methods import METHODS as CALLS
from escrowmq.wire.rocketmq.remoting.operations import OPERATIONS as CLASSIC
from tests.unit.sources import ROOT


def need(each: Need) -> str:
    words = each.object.replace("_", "-")
    return f"{words}: {each.right}"


def row(operation: Operation) -> str:
    methods = [f"`{spec.METHODS[index].NAME}`" for index, asked in OPERATIONS.items() if operation in asked]
    requests = [f"`{route}`" for route in ROUTES if operation in route.operations]
    classic = [f"`{code.name}`" for code, asked in CLASSIC.items() if operation in asked]
    calls = [
        f"`{path.rpartition(b'/')[2].decode()}`" for path, method in CALLS.items() if operation in method.operations
    ]
    needs = ", ".join(map(need, TABLE[operation])) or "none"
    return f"| {operation} | {', '.join(methods + requests + classic + calls)} | {needs} |"


@pytest.mark.rule("SEC-1")
def test_every_operation_is_documented_as_it_is_checked() -> None:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    section = page.partition("## Rights of each operation")[2].partition("\n## ")[0]
    rows = re.findall(r"^\|.*\|$", section, re.MULTILINE)[2:]
    assert rows == [row(operation) for operation in TABLE]


SETTINGS_ELSEWHERE = {"auto_create_nodes"}
"""Keys of `[limits]` that bound nothing."""


@pytest.mark.rule("FAIR-3")
def test_every_limit_of_the_configuration_is_among_the_limits_with_its_key() -> None:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    section = page.partition("\n## Limits")[2].partition("\n## ")[0]
    keys = set(LimitsSection.model_fields) - SETTINGS_ELSEWHERE
    keys |= {"half_messages.per_user", "half_messages.outcomes", "http.connections"}
    keys |= {"memory.high_watermark", "memory.grace_seconds", "disk.free_limit"}
    missing = sorted(key for key in keys if f"`{key}`" not in section)
    assert not missing, f"say what is bounded, with which default, and what a client is told: {missing}"
