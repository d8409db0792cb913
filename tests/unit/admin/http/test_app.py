"""The routes: what they need, and what they answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from escrowmq.admin.http import app
from escrowmq.admin.http.app import ONLY_READ
from escrowmq.admin.http.escrow import ESCROW_ROUTES
from escrowmq.admin.http.management import READ_ROUTES
from tests.unit.admin.http.sites import HttpSite

NAMES = {"vhost": "%2F", "user": "guest", "name": "q", "xid": "x", "transaction": "t"}
GUARDED = (
    "/metrics",
    "/metrics/detailed",
    *("/api/" + path.format(**NAMES) for path in (*READ_ROUTES, *ESCROW_ROUTES)),
    "/api/none",
)


def test_the_list_of_guarded_routes_is_complete() -> None:
    paths = {route.path for route in HttpSite().app.routes}  # type: ignore[attr-defined]
    assert paths == {"/health", "/metrics", "/metrics/detailed", "/api/{path:path}"}


@pytest.mark.parametrize("path", GUARDED)
def test_a_route_without_a_login_is_refused(path: str) -> None:
    answer = HttpSite().get(path, user=None)
    assert (answer.status, answer.json["error"]) == (401, "not_authorized")
    assert answer.headers["www-authenticate"] == 'Basic realm="EscrowMQ"'


@pytest.mark.parametrize("path", GUARDED)
def test_a_wrong_password_is_refused(path: str) -> None:
    assert HttpSite().get(path, password="wrong").status == 401


@pytest.mark.parametrize("path", GUARDED)
def test_a_user_without_tags_is_refused(path: str) -> None:
    site = HttpSite()
    site.server.broker.access.add_user("plain", "hash")
    assert site.get(path, "plain").status == 401


@pytest.mark.parametrize(("tag", "status"), [("monitoring", 200), ("administrator", 200), ("management", 401)])
def test_metrics_need_the_tag_of_a_monitor(tag: str, status: int) -> None:
    site = HttpSite()
    site.server.broker.access.add_user("m", "hash", (tag,))
    assert site.get("/metrics", "m").status == status


@pytest.mark.parametrize("path", ["/metrics", "/metrics/detailed?family=queue_coarse_metrics"])
def test_metrics_are_open_if_that_is_configured(path: str) -> None:
    assert HttpSite(open_metrics=True).get(path, user=None).status == 200


def test_health_needs_no_login_and_says_nothing_of_the_broker() -> None:
    answer = HttpSite().get("/health", user=None)
    assert (answer.status, answer.json) == (200, {"status": "ok"})


def test_without_its_broker_the_interface_is_unavailable() -> None:
    site = HttpSite()
    site.broker.gone = True
    for path in ("/health", "/metrics", "/api/whoami"):
        assert site.get(path).status == 503


def test_health_is_refused_if_the_broker_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    async def frozen(command: str, **arguments: Any) -> Any:
        del command, arguments
        await asyncio.Event().wait()

    site = HttpSite()
    monkeypatch.setattr(site.broker, "ask", frozen)
    monkeypatch.setattr(app, "HEALTH_SECONDS", 0.01)
    assert site.get("/health", user=None).status == 503


def test_whoami_returns_name_and_tags() -> None:
    assert HttpSite().get("/api/whoami").json == {"name": "guest", "tags": ["administrator"]}


@pytest.mark.parametrize("path", ["/", "/api", "/metrics/", "/..%2f..%2fetc/passwd", "/health/../metrics"])
def test_other_paths_do_not_exist(path: str) -> None:
    assert HttpSite().get(path, user=None).status in {404, 307}


def test_only_reading_is_possible() -> None:
    for path in ("/health", *GUARDED):
        answer = HttpSite().request("DELETE", path)
        assert (answer.status, answer.json) == (405, {"error": "Method Not Allowed", "reason": ONLY_READ})


def test_an_unknown_family_is_refused_with_the_known_ones() -> None:
    answer = HttpSite().get("/metrics/detailed?family=none")
    assert answer.status == 400
    assert "queue_coarse_metrics" in answer.json["reason"]
