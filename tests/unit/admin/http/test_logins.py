"""HTTP basic authentication, and bearer tokens."""

from __future__ import annotations

import base64

import pytest

from tests.unit.admin.http.sites import HttpSite


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Basic",
        "Basic ",
        "Basic %%%",
        basic("guest"),
        "Bearer",
        "Bearer ",
        "Bearer :",
        "Bearer " + "a" * 17_000,
        "Bearerx a:tag:management",
        "Basic " + "A" * 5000,
        "Basic /w==",
        "Basic \xe9",
        basic(":"),
    ],
)
def test_a_header_that_is_no_login_is_refused(header: str) -> None:
    assert HttpSite().request("GET", "/api/whoami", {"authorization": header}).status == 401


def test_a_password_may_contain_colons_and_other_characters() -> None:
    site = HttpSite()
    site.server.broker.access.add_user("a b/ü", "hash", ("management",))
    assert site.get("/api/whoami", "a b/ü").json["name"] == "a b/ü"
    header = basic("guest:password of guest:more")
    assert site.request("GET", "/api/whoami", {"authorization": header}).status == 401


def test_the_name_of_the_scheme_may_be_in_lower_case() -> None:
    header = basic("guest:password of guest").replace("Basic", "basic")
    assert HttpSite().request("GET", "/api/whoami", {"authorization": header}).status == 200


def test_a_deleted_user_is_refused() -> None:
    site = HttpSite()
    site.server.broker.access.remove_user("guest")
    assert site.get("/api/whoami").status == 401


def test_a_token_logs_in_a_user_that_is_not_listed() -> None:
    site = HttpSite()
    for scheme in ("Bearer", "bearer", "BEARER"):
        answer = site.request("GET", "/api/whoami", {"authorization": f"{scheme} alice:tag:management"})
        assert (answer.status, answer.json) == (200, {"name": "alice", "tags": ["management"]})
    assert site.request("GET", "/api/whoami", {"authorization": "Bearer alice:read:*/*"}).status == 401


@pytest.mark.rule("SEC-1")
def test_a_token_is_asked_for_its_own_rights_and_not_for_those_of_a_listed_user() -> None:
    site = HttpSite()

    def put(name: str, token: str) -> int:
        headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        return site.request("PUT", f"/api/queues/%2F/{name}", headers, b"{}").status

    assert put("mine", "guest:tag:management configure:%2F/mine") == 201
    assert put("other", "guest:tag:management configure:%2F/mine") in {400, 401, 403}
    assert put("other", "guest:tag:administrator") in {400, 401, 403}
    assert "other" not in site.server.broker.directory.vhosts["/"].queues


def test_a_token_sees_the_virtual_hosts_that_its_scopes_match() -> None:
    site = HttpSite()
    site.server.broker.directory.add_vhost("orders")

    def seen(scopes: str) -> list[str]:
        answer = site.request("GET", "/api/vhosts", {"authorization": f"Bearer alice:tag:management {scopes}"})
        return [row["name"] for row in answer.json]

    assert seen("") == []
    assert seen("read:ord*/*") == ["orders"]
    assert seen("read:*/*") == ["/", "orders"]
