"""Sessions to which the format is made known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import escrowmq.spark
from escrowmq.spark.source_format import EscrowDataSource


class Remote:
    """A session of Spark Connect: there is neither a context nor a JVM behind it, and no master to be asked for."""

    def __init__(self) -> None:
        self.registered: list[Any] = []
        self.dataSource = SimpleNamespace(register=self.registered.append)


def test_a_session_of_spark_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("escrowmq.java.version", lambda _: "4.3.0")
    remote: Any = Remote()
    escrowmq.spark.register(remote)
    escrowmq.spark.register(remote)
    assert remote.registered == [EscrowDataSource]
