"""Who may see the console, and which forms it accepts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount, Route

from escrowmq.admin.http.app import CHANGE_ROUTES, READING, HttpInterface
from escrowmq.admin.http.escrow import CHANGES
from escrowmq.console.actions import ACTIONS
from escrowmq.console.answers import HEADERS
from escrowmq.console.app import LONGEST_FORM
from escrowmq.console.pages import PAGES, menu_of
from escrowmq.console.sessions import IDLE_SECONDS
from escrowmq.evidence.files import BrokerFiles
from escrowmq.evidence.routes import file_routes
from tests.unit.admin.http.sites import Answer, login
from tests.unit.console.sites import Browser


def stranger() -> Browser:
    return Browser(user="")


def test_without_a_login_every_page_leads_to_the_login() -> None:
    browser = stranger()
    answer = browser.open("/console/queues/%2F/q")
    assert (answer.status, answer.headers["location"]) == (303, "/console/login?then=/console/queues/%252F/q")
    assert browser.open("/").headers["location"] == "/console/"
    assert browser.open("/console/rates").status == 303
    part = browser.open("/console/queues", **{"hx-request": "true"})
    assert (part.status, part.headers["hx-refresh"]) == (204, "true")


def test_a_login_opens_a_session_and_leads_on() -> None:
    browser = stranger()
    answer = browser.log_in("guest")
    assert (answer.status, answer.headers["location"]) == (303, "/console/")
    cookie = answer.headers["set-cookie"].lower()
    assert all(word in cookie for word in ("httponly", "samesite=strict", "path=/console"))
    assert browser.open("/console/").status == 200


@pytest.mark.parametrize("password", ["wrong", ""])
def test_a_wrong_login_is_refused(password: str) -> None:
    browser = stranger()
    answer = browser.log_in("guest", password)
    assert (answer.status, "set-cookie" in answer.headers) == (401, False)
    assert browser.open("/console/").status == 303


def test_a_user_without_a_tag_is_told_which_it_needs() -> None:
    browser = stranger()
    browser.server.broker.access.add_user("u", "hash", ("management",))
    answer = browser.log_in("u")
    assert (answer.status, b"tag monitoring" in answer.body) == (401, True)


def test_a_deleted_user_and_lost_tags_end_a_session_at_once() -> None:
    browser = Browser(user="m")
    assert browser.open("/console/").status == 200
    browser.server.broker.access.set_tags("m", ())
    assert browser.open("/console/").status == 303
    browser.server.broker.access.set_tags("m", ("monitoring",))
    assert browser.open("/console/").status == 200
    del browser.server.broker.access.users["m"]
    assert browser.open("/console/").status == 303


def test_a_monitor_sees_no_entries_of_pages_for_administrators() -> None:
    entries = menu_of(administrator=True).keys() - menu_of(administrator=False).keys()
    assert "users" in entries
    browser = Browser(user="m")
    assert b"/console/users" not in browser.open("/console/").body
    assert browser.open("/console/users").status == 403


def test_an_idle_session_ends() -> None:
    browser = Browser()
    browser.now += IDLE_SECONDS - 1
    assert browser.open("/console/").status == 200
    browser.now += IDLE_SECONDS
    assert browser.open("/console/").status == 303


def test_a_logout_ends_the_session() -> None:
    browser = Browser()
    token = form_token(browser)
    assert browser.send("/console/logout", {}).status == 403
    assert browser.send("/console/logout", {"form_token": token}).status == 303
    assert browser.open("/console/").status == 303


def form_token(browser: Browser) -> str:
    return browser.text("/console/").partition('name="form_token" value="')[2].partition('"')[0]


def add_user(browser: Browser, **fields: str) -> int:
    form = {"form_token": form_token(browser), "name": "new", "password": "p", "tags": ""} | fields
    return browser.send("/console/actions/user-add", form).status


@pytest.mark.parametrize("token", ["", "x", "ü"])
def test_a_form_of_another_site_changes_nothing(token: str) -> None:
    browser = Browser()
    assert add_user(browser, form_token=token) == 403
    assert "new" not in browser.server.broker.access.users


def test_the_token_of_another_session_is_worth_nothing() -> None:
    browser, other = Browser(), Browser()
    assert add_user(browser, form_token=form_token(other)) == 403


def test_a_login_that_another_site_sends_is_refused() -> None:
    browser = stranger()
    assert browser.log_in("guest", **{"sec-fetch-site": "cross-site"}).status == 403
    assert browser.log_in("guest", **{"sec-fetch-site": "same-origin"}).status == 303


def test_changes_need_the_tag_administrator() -> None:
    browser = Browser(user="m")
    assert add_user(browser) == 403
    assert "new" not in browser.server.broker.access.users


def test_a_change_is_done_and_leads_back() -> None:
    browser = Browser()
    form = {"form_token": form_token(browser), "name": "new", "password": "p", "tags": "", "back": "/console/users"}
    answer = browser.send("/console/actions/user-add", form)
    assert (answer.status, answer.headers["location"]) == (303, "/console/users")
    assert "User new was added." in browser.text("/console/users")


@pytest.mark.parametrize("back", ["https://example.org/", "//x.org", "/console/\\x.org", "/api/", "/console/ x"])
def test_no_form_leads_to_another_site(back: str) -> None:
    browser = Browser()
    form = {"form_token": form_token(browser), "name": "new", "password": "p", "tags": "", "back": back}
    assert browser.send("/console/actions/user-add", form).headers["location"] == "/console/"
    answer = stranger().send("/console/login", {"user": "guest", "password": "password of guest", "then": back})
    assert answer.headers["location"] == "/console/"


def test_forms_are_bounded_and_must_be_forms() -> None:
    browser = Browser()
    assert browser.send("/console/login", {"user": "x" * LONGEST_FORM}).status == 413
    headers = {"cookie": browser.cookie}
    assert browser.request("POST", "/console/actions/user-add", headers, b"\xff\x00").status == 400
    assert browser.request("POST", "/console/actions/user-add", headers, b"a=%ff").status == 400
    assert browser.send("/console/actions/nothing", {"form_token": form_token(browser)}).status == 404


@pytest.mark.parametrize("path", ["/console/", "/console/login", "/console/none", "/console/rates"])
def test_every_answer_forbids_what_browsers_would_allow(path: str) -> None:
    answer = Browser().open(path)
    assert {name: answer.headers[name.lower()] for name in HEADERS} == HEADERS
    assert "unsafe" not in HEADERS["Content-Security-Policy"]


@pytest.mark.parametrize(
    "path", ["/console/none", "/console/queues/a", "/console/static/../app.py", "/console/static/%2e%2e/app.py"]
)
def test_unknown_pages_are_not_found(path: str) -> None:
    assert Browser().open(path).status == 404


def test_a_broker_that_does_not_answer_is_said() -> None:
    browser = Browser()
    browser.broker.gone = True
    answer = browser.open("/console/")
    assert (answer.status, b"does not answer" in answer.body) == (503, True)


def log_in_by(browser: Browser, token: str) -> int:
    """Send the form for tokens. A token of the test is a user, a colon and scopes."""
    answer = browser.send("/console/login", {"token": token, "then": "/console/"})
    if "set-cookie" in answer.headers:
        browser.cookie = answer.headers["set-cookie"].partition(";")[0]
    return answer.status


def test_a_token_opens_a_session_with_its_tags_and_rights() -> None:
    browser = stranger()
    assert log_in_by(browser, " ann:tag:administrator read:*/* ") == 303
    assert "<span>ann</span>" in browser.text("/console/")
    assert add_user(browser) == 303
    assert "new" in browser.server.broker.access.users
    publish = {"vhost": "/", "exchange": "", "routing_key": "q", "payload": "", "properties": "{}"}
    browser.send("/console/actions/message-publish", publish | {"form_token": form_token(browser)})
    assert "refused" in browser.text("/console/queues")  # the token does not grant to write


@pytest.mark.parametrize("token", [":", "ann:", "ann:tag:management"])
def test_a_token_that_is_refused_or_lacks_the_tag_opens_none(token: str) -> None:
    browser = stranger()
    assert log_in_by(browser, token) == 401
    assert browser.open("/console/").status == 303


def test_a_token_that_has_expired_ends_its_session() -> None:
    browser = stranger()
    log_in_by(browser, "ann:tag:monitoring")
    assert browser.open("/console/").status == 200
    browser.broker.process.expired_tokens.add("ann:tag:monitoring")
    assert browser.open("/console/").status == 303


def test_a_login_by_a_token_that_another_site_sends_is_refused() -> None:
    headers = {"sec-fetch-site": "cross-site"}
    assert stranger().send("/console/login", {"token": "ann:tag:monitoring"}, **headers).status == 403


HEALTH = {("GET", "/health"), ("GET", "/health/leader")}
OPEN = HEALTH | {
    ("GET", "/"),
    ("GET", "/favicon.ico"),
    ("GET", "/console"),
    ("GET", "/console/login"),
    ("POST", "/console/login"),
}
"""What may be asked without a login. The first says only whether the broker answers, the others lead to the login,
or have the icon."""
NAMED = {"{path:rest}": "", "{name}": "branch-commit"}


def every_request(app: Starlette) -> set[tuple[str, str]]:
    """Return method and path of everything that the HTTP process answers, but not the console's own files.

    Whoever adds a route gets a request for it here.
    """
    found: set[tuple[str, str]] = set()
    for route in app.routes:
        if isinstance(route, Mount):
            assert route.path == "/console/static"
            continue
        assert isinstance(route, Route)
        path = re.sub(r"\{[^}]*\}", lambda part: NAMED[part[0]], route.path)
        found |= {(method, path) for method in route.methods or () if method != "HEAD"}
    files = file_routes(BrokerFiles(Path("/nonexistent")))
    reading = {**READING, **files.reading}
    changes = {path: set(methods) for path, methods in {**CHANGE_ROUTES, **files.changes}.items()}
    found |= {("GET", "/api/" + path) for path in reading}
    found |= {(method, "/api/" + path) for path, methods in changes.items() for method in methods}
    found |= {("POST", "/api/" + path) for path in CHANGES}
    found |= {("GET", "/console/" + path) for path in PAGES}
    found |= {("POST", "/console/actions/" + name) for name in ACTIONS}
    return {(method, re.sub(r"\{[^}]*\}", "x", path)) for method, path in found}


def whole_site() -> Browser:
    """Return a site with all routes of the HTTP process, and no login."""
    site = Browser(user="")
    files = file_routes(BrokerFiles(Path("/nonexistent")))
    site.app = HttpInterface(site.broker, more=files).app(site.console.routes())
    return site


def refused(answer: Answer) -> bool:
    """Whether an answer says nothing but that a login is needed."""
    if answer.status == 401 and answer.headers["content-type"] == "application/json":
        return set(answer.json) == {"error", "reason"}
    return answer.status == 303 and answer.headers["location"].startswith("/console/login?then=") and not answer.body


@pytest.mark.rule("SEC-1")
def test_nothing_but_health_and_the_login_is_answered_without_a_login() -> None:
    site = whole_site()
    requests = every_request(site.app)
    assert len(requests) > 150
    answered = {
        (method, path)
        for method, path in requests
        if not refused(site.request(method, path, {"content-type": "application/json"}, b"{}"))
    }
    assert answered == OPEN


@pytest.mark.rule("SEC-1")
def test_nothing_is_answered_to_a_user_without_a_tag() -> None:
    site = whole_site()
    site.server.broker.access.add_user("plain", "hash")
    for method, path in every_request(site.app) - OPEN:
        headers = login("plain") | {"content-type": "application/json"}
        assert refused(site.request(method, path, headers, b"{}")), (method, path)


def test_the_icon_is_answered_where_browsers_look_for_it() -> None:
    icon = whole_site().request("GET", "/favicon.ico", {}, b"")
    assert (icon.status, icon.headers["content-type"]) == (200, "image/svg+xml")
    assert icon.body.startswith(b"<svg ")
    assert b'rel="icon" type="image/svg+xml" href="/console/static/icon.svg"' in stranger().open("/console/login").body


@pytest.mark.parametrize(
    "path", ["../../etc/passwd", "%2e%2e/%2e%2e/pages.py", "..%2fapp.py", "/etc/passwd", "vendor/"]
)
def test_the_files_of_the_console_are_all_that_can_be_fetched(path: str) -> None:
    answer = whole_site().request("GET", f"/console/static/{path}", {}, b"")
    assert answer.status in {303, 404}
    assert b"root:" not in answer.body
    assert b"import " not in answer.body


def test_files_of_the_program_may_be_stored_but_their_type_is_not_guessed() -> None:
    headers = whole_site().request("GET", "/console/static/console.js", {}, b"").headers
    assert headers["x-content-type-options"] == "nosniff"
    assert "cache-control" not in headers
