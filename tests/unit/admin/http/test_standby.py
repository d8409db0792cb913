"""What a standby answers over HTTP: it cannot check a login, so it shows little, and names the leader."""

from __future__ import annotations

import pytest

from tests.unit.admin.http.sites import StandbySite

SHOWN = ("/metrics", "/api/escrow/replica")
LEADING = ("/api/overview", "/api/queues/%2F/orders", "/metrics/detailed", "/api", "/api/", "/none")


@pytest.mark.parametrize("path", SHOWN)
def test_figures_are_not_shown_if_metrics_need_a_login(path: str) -> None:
    answer = StandbySite().get(path)
    assert answer.status == 401
    assert "http.open_metrics" in answer.json["reason"]


def test_the_standing_is_that_of_this_node() -> None:
    answer = StandbySite(open_metrics=True).get("/api/escrow/replica", user=None)
    assert answer.status == 200
    assert (answer.json["role"], answer.json["nodes"][0]["node"]) == ("standby", "n2")


def test_metrics_are_those_of_this_node() -> None:
    answer = StandbySite(open_metrics=True).get("/metrics", user=None)
    assert answer.status == 200
    lines = answer.body.decode().splitlines()
    assert "escrowmq_replica_leads 0.0" in lines
    assert "escrowmq_replica_behind_bytes 3072.0" in lines
    assert not any("amqp://" in line for line in lines)


@pytest.mark.parametrize("user", [None, "guest"])
@pytest.mark.parametrize("path", LEADING)
def test_everything_else_is_refused_with_the_address_of_the_leader(path: str, user: str | None) -> None:
    answer = StandbySite().get(path, user)
    reason = "this node is a standby; the leader is amqp://n1"
    assert (answer.status, answer.json) == (503, {"error": "standby", "reason": reason, "leader": "amqp://n1"})
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
@pytest.mark.parametrize("path", ["/api/queues/%2F/orders", "/api/escrow/branches/x/commit"])
def test_changes_are_refused_in_the_same_way(path: str, method: str) -> None:
    assert StandbySite().request(method, path).json["leader"] == "amqp://n1"


def test_without_a_leader_the_refusal_says_so() -> None:
    answer = StandbySite(leader_url="").get("/api/overview")
    assert answer.json["reason"] == "this node is a standby, and knows of no leader"


def test_health_says_that_the_node_is_a_standby() -> None:
    site = StandbySite()
    assert (site.get("/health", None).status, site.get("/health/leader", None).status) == (200, 503)
