"""The format is registered with sessions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import escrowmq.spark
from escrowmq.spark.source_format import EscrowDataSource


class Remote:
    """A fake session of Spark Connect, which has no context, no JVM and no master."""

    def __init__(self) -> None:
        self.registered: list[Any] = []
        self.dataSource = SimpleNamespace(register=self.registered.append)


def test_the_format_is_registered_once_with_a_session_of_spark_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("escrowmq.java.version", lambda _: "4.3.0")
    remote: Any = Remote()
    escrowmq.spark.register(remote)
    escrowmq.spark.register(remote)
    assert remote.registered == [EscrowDataSource]
