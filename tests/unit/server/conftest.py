"""Fixtures for tests of the server's parts."""

from __future__ import annotations

import pytest

from escrowmq.server import connection
from tests.unit.server.scenes import HEADER, sniff


@pytest.fixture
def fake_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections speak the protocol of `FakeEndpoint`."""
    monkeypatch.setattr(connection, "sniff", sniff)
    monkeypatch.setattr(connection, "hopeless", lambda start: not HEADER.startswith(start[:8]))
