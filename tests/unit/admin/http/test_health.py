"""The routes that load balancers and orchestrators ask."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from escrowmq.admin.http import health
from tests.unit.admin.http.sites import HttpSite


def test_health_is_refused_if_the_broker_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    async def frozen(command: str, **arguments: Any) -> Any:
        del command, arguments
        await asyncio.Event().wait()

    site = HttpSite()
    monkeypatch.setattr(site.broker, "ask", frozen)
    monkeypatch.setattr(health, "HEALTH_SECONDS", 0.01)
    assert site.get("/health", user=None).status == 503


@pytest.mark.parametrize("role", ["standby", "cut off"])
def test_a_node_that_serves_no_clients_is_healthy_but_no_leader(role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def standby(command: str) -> str:
        assert command == "ping"
        return role

    site = HttpSite()
    assert site.get("/health/leader", user=None).status == 200
    monkeypatch.setattr(site.broker, "ask", standby)
    answer = site.get("/health", user=None)
    assert (answer.status, answer.json) == (200, {"status": role})
    answer = site.get("/health/leader", user=None)
    assert (answer.status, answer.json) == (503, {"status": role})
