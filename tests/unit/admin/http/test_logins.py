"""HTTP basic authentication."""

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
        "Bearer x",
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
