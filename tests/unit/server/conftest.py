"""Fixtures for tests of the server's parts."""

from __future__ import annotations

import pytest

from escrowmq.server import connection
from escrowmq.wire.sniff import Family, refusal
from tests.unit.server.scenes import HEADER, sniff


@pytest.fixture
def fake_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections speak the protocol of `FakeEndpoint`."""
    family = Family(sniff, lambda start: not HEADER.startswith(start[:8]), refusal, websocket=True)
    monkeypatch.setattr(connection, "AMQP_FAMILY", family)
