"""The routes: what they need, and what they answer."""

from __future__ import annotations

import logging

import pytest

from escrowmq.admin.http.app import CHANGE_ROUTES, NO_PATH
from escrowmq.admin.http.escrow import ESCROW_ROUTES
from escrowmq.admin.http.failures import NOT_ALLOWED
from escrowmq.admin.http.headers import SAFE
from escrowmq.admin.http.management import READ_ROUTES
from escrowmq.admin.http.writing import LONGEST_BODY
from tests.unit.admin.http.sites import HttpSite, login

NAMES = {
    "vhost": "%2F",
    "user": "guest",
    "name": "q",
    "xid": "x",
    "transaction": "t",
    "source": "amq.direct",
    "destination": "q",
    "properties": "k",
    "port": "5672",
    "protocol": "amqp091",
    "exchange": "amq.topic",
    "component": "vhost-limits",
}
GUARDED = (
    "/metrics",
    "/metrics/detailed",
    *("/api/" + path.format(**NAMES) for path in (*READ_ROUTES, *ESCROW_ROUTES)),
    "/api/none",
)


def test_the_list_of_guarded_routes_is_complete() -> None:
    paths = {route.path for route in HttpSite().app.routes}  # type: ignore[attr-defined]
    assert paths == {"/health", "/health/leader", "/metrics", "/metrics/detailed", "/api/{path:rest}"}


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


def test_whoami_returns_name_and_tags() -> None:
    assert HttpSite().get("/api/whoami").json == {"name": "guest", "tags": ["administrator"]}


@pytest.mark.parametrize("path", ["/", "/api", "/metrics/", "/..%2f..%2fetc/passwd", "/health/../metrics"])
def test_other_paths_do_not_exist(path: str) -> None:
    assert HttpSite().get(path, user=None).status in {404, 307}


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
@pytest.mark.parametrize("path", ["/health", *GUARDED])
def test_a_path_takes_no_other_methods_than_those_that_it_names(path: str, method: str) -> None:
    pattern = {"/api/" + each.format(**NAMES): methods for each, methods in CHANGE_ROUTES.items()}
    pattern["/api/users/without-permissions"] = pattern["/api/users/guest"]
    if path == "/api/none" or method in pattern.get(path, ()):
        return
    answer = HttpSite().request(method, path, {**login("guest"), "content-type": "application/json"})
    assert (answer.status, answer.json) == (405, {"error": "Method Not Allowed", "reason": NOT_ALLOWED})
    assert "GET" in answer.headers["allow"]


@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE"])
def test_a_change_of_what_this_broker_does_not_have_says_so(method: str) -> None:
    answer = HttpSite().request(method, "/api/shovels/%2F/s", login("guest"), b"{}")
    assert answer.status == 501
    assert answer.json == {"error": "not_implemented", "reason": NO_PATH}


def test_a_path_that_does_not_exist_says_so() -> None:
    assert HttpSite().get("/api/shovels").json == {"error": "Object Not Found", "reason": NO_PATH}


def test_an_unknown_family_is_refused_with_the_known_ones() -> None:
    answer = HttpSite().get("/metrics/detailed?family=none")
    assert answer.status == 400
    assert "queue_coarse_metrics" in answer.json["reason"]


CHANGES = [(method, path) for path, methods in CHANGE_ROUTES.items() for method in methods]
TAGS = ("management", "policymaker", "monitoring", "administrator")


@pytest.mark.rule("SEC-1")
@pytest.mark.parametrize(("method", "path"), CHANGES)
@pytest.mark.parametrize("tag", [*TAGS, "other", ""])
def test_a_change_needs_one_of_its_tags(method: str, path: str, tag: str) -> None:
    site = HttpSite()
    site.server.broker.access.add_user("t", "hash", (tag,))
    site.server.broker.access.set_permission("t", "/", ".*", ".*", ".*")
    before = site.server.broker.access.version, site.server.broker.directory.vhost("/").version
    answer = site.call(method, "/api/" + path.format(**NAMES), {}, "t")
    if tag in CHANGE_ROUTES[path][method].tags:
        assert answer.status != 401 or "lacks the tag" not in answer.json["reason"]
    else:
        assert (answer.status, answer.json["error"]) == (401, "not_authorized")
        assert before == (site.server.broker.access.version, site.server.broker.directory.vhost("/").version)


@pytest.mark.rule("SEC-1")
@pytest.mark.parametrize(("method", "path"), CHANGES)
def test_a_change_without_a_valid_login_is_refused(method: str, path: str) -> None:
    site = HttpSite()
    assert site.call(method, "/api/" + path.format(**NAMES), {}, None).status == 401
    assert site.request(method, "/api/" + path.format(**NAMES), login("guest", "wrong")).status == 401


@pytest.mark.rule("SEC-1")
@pytest.mark.parametrize(("method", "path"), CHANGES)
@pytest.mark.parametrize("origin", ["cross-site", "same-site"])
def test_a_page_of_another_site_cannot_change_anything(method: str, path: str, origin: str) -> None:
    headers = login("guest") | {"content-type": "application/json", "sec-fetch-site": origin}
    answer = HttpSite().request(method, "/api/" + path.format(**NAMES), headers, b"{}")
    assert (answer.status, answer.json["error"]) == (403, "forbidden")


@pytest.mark.rule("SEC-1")
@pytest.mark.parametrize("path", [path for method, path in CHANGES if method == "POST"])
@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_a_form_cannot_change_anything(path: str, kind: str) -> None:
    headers = login("guest") | {"content-type": kind}
    answer = HttpSite().request("POST", "/api/" + path.format(**NAMES), headers, b"{}")
    assert (answer.status, answer.json["reason"]) == (400, "the content type must be application/json")


@pytest.mark.parametrize("body", [b"{", b"\xff", b"[]", b"1", b"[" * 100_000, b'{"arguments": ' + b"[" * 40])
def test_a_body_that_is_no_json_object_is_refused(body: bytes) -> None:
    site = HttpSite()
    answer = site.request("PUT", "/api/queues/%2F/q", login("guest"), body)
    assert (answer.status, answer.json["error"]) == (400, "bad_request")
    assert site.server.broker.directory.vhost("/").queues == {}


def test_a_body_that_is_too_long_is_refused() -> None:
    body = b" " * (LONGEST_BODY + 1)
    answer = HttpSite().request("PUT", "/api/queues/%2F/q", login("guest"), body)
    assert (answer.status, answer.json["error"]) == (413, "payload_too_large")


def test_a_change_is_logged_with_the_user_who_made_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    HttpSite().put("/api/vhosts/v", {})
    assert "vhost.put name='v' by='guest'" in caplog.messages


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/health", 200),
        ("GET", "/metrics", 200),
        ("GET", "/api/overview", 200),
        ("GET", "/api/queues", 200),
        ("GET", "/api/queues/%2F/none", 404),
        ("GET", "/none", 404),
        ("PUT", "/api/queues", 405),
        ("DELETE", "/health", 405),
        ("POST", "/api/nothing", 501),
        ("POST", "/api/definitions", 400),
    ],
)
def test_every_answer_forbids_browsers_to_guess_its_type_and_to_store_it(method: str, path: str, status: int) -> None:
    answer = HttpSite().request(method, path, login("guest"))
    assert answer.status == status
    assert {name: answer.headers.get(name.lower()) for name in SAFE} == SAFE


def test_a_fault_of_the_process_is_answered_without_its_details(monkeypatch: pytest.MonkeyPatch) -> None:
    site = HttpSite()

    async def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(site.broker, "ask", broken)
    site.faults_are_raised = False
    answer = site.get("/health")
    assert (answer.status, b"secret" in answer.body) == (500, False)
    assert {name: answer.headers.get(name.lower()) for name in SAFE} == SAFE
