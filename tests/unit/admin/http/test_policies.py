"""Policies, operator policies and parameters over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.admin.http.sites import HttpSite

POLICY: dict[str, Any] = {"pattern": "^q", "definition": {"max-length": 3}}


@pytest.mark.parametrize(("path", "apply_to"), [("policies", "all"), ("operator-policies", "queues")])
def test_a_policy_is_set_shown_and_deleted(path: str, apply_to: str) -> None:
    site = HttpSite()
    assert [site.put(f"/api/{path}/%2F/p", POLICY).status for _ in range(2)] == [201, 204]
    given = POLICY | {"vhost": "/", "name": "p", "apply-to": None, "priority": "3"}
    assert site.put(f"/api/{path}/%2F/p", given).status == 204
    shown = POLICY | {"vhost": "/", "name": "p", "apply-to": apply_to, "priority": 3}
    assert site.get(f"/api/{path}").json == site.get(f"/api/{path}/%2F").json == [shown]
    assert site.get(f"/api/{path}/%2F/p").json == shown
    assert [site.delete(f"/api/{path}/%2F/p").status for _ in range(2)] == [204, 404]
    assert site.get(f"/api/{path}/%2F/p").status == 404
    assert site.get(f"/api/{path}/none").status == 404
    assert site.put(f"/api/{path}/none/p", POLICY).status == 404


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"definition": {"max-length": 1}}, "key_missing: pattern"),
        ({"pattern": ""}, "key_missing: definition"),
        ({"pattern": "", "definition": []}, "definition: an object is needed"),
        ({"pattern": 1, "definition": {"max-length": 1}}, "pattern: a text is needed"),
        ({"pattern": "(", "definition": {"max-length": 1}}, "invalid regular expression"),
        ({"pattern": "", "definition": {}}, "no policy provided"),
        ({"pattern": "", "definition": {"max-size": 1}}, "max-size: not recognised policy settings"),
        ({"pattern": "", "definition": {"max-length": "1"}}, "max-length: "),
        ({"pattern": "", "definition": {"max-length": 1}, "priority": "high"}, "priority: a number is needed"),
        ({"pattern": "", "definition": {"max-length": 1}, "apply-to": "queue"}, "apply-to: 'queue' is not known"),
    ],
)
def test_an_invalid_policy_is_refused_with_the_reason(body: dict[str, Any], reason: str) -> None:
    site = HttpSite()
    answer = site.put("/api/policies/%2F/p", body)
    assert (answer.status, answer.json["error"]) == (400, "bad_request")
    assert reason in answer.json["reason"]
    assert site.get("/api/policies").json == []


def test_queues_and_exchanges_show_their_policies() -> None:
    site = HttpSite()
    site.put("/api/queues/%2F/q", {})
    site.put("/api/policies/%2F/p", {"pattern": "^(q|amq.topic)$", "definition": {"message-ttl": 9}})
    site.put("/api/operator-policies/%2F/o", {"pattern": "", "definition": {"message-ttl": 5}})
    queue = site.get("/api/queues/%2F/q").json
    assert (queue["policy"], queue["operator_policy"]) == ("p", "o")
    assert queue["effective_policy_definition"] == {"message-ttl": 5}
    exchange = site.get("/api/exchanges/%2F/amq.topic").json
    assert (exchange["policy"], exchange["operator_policy"]) == ("p", None)
    assert site.get("/api/exchanges/%2F/amq.default").json["effective_policy_definition"] == {}


@pytest.mark.rule("SEC-1")
@pytest.mark.parametrize(
    ("tag", "policies", "operator_policies", "parameters"),
    [
        ("management", (401, 401), (401, 401), (401, 401)),
        ("monitoring", (401, 401), (401, 401), (401, 401)),
        ("policymaker", (200, 201), (401, 401), (200, 401)),
        ("administrator", (200, 201), (200, 201), (200, 201)),
    ],
)
def test_tags_say_who_may_do_what(
    tag: str, policies: tuple[int, int], operator_policies: tuple[int, int], parameters: tuple[int, int]
) -> None:
    site = HttpSite()
    site.put("/api/users/u", {"password": "u", "tags": tag})
    site.put("/api/permissions/%2F/u", {"configure": "", "write": "", "read": ""})
    assert statuses(site, "policies", POLICY) == policies
    assert statuses(site, "operator-policies", POLICY) == operator_policies
    found = site.get("/api/global-parameters", user="u").status
    made = site.put("/api/global-parameters/a", {"value": 1}, user="u").status
    assert (found, made) == parameters


def statuses(site: HttpSite, path: str, body: object) -> tuple[int, int]:
    found = site.get(f"/api/{path}", user="u").status
    return found, site.put(f"/api/{path}/%2F/p", body, user="u").status


@pytest.mark.rule("SEC-2")
def test_a_policymaker_sees_and_changes_the_policies_of_its_virtual_hosts_only() -> None:
    site = HttpSite()
    for vhost in ("mine", "theirs"):
        site.put(f"/api/vhosts/{vhost}", None)
        site.put(f"/api/policies/{vhost}/p", POLICY)
    site.put("/api/users/u", {"password": "u", "tags": "policymaker"})
    site.put("/api/permissions/mine/u", {"configure": "", "write": "", "read": ""})
    seen = site.get("/api/policies", user="u").json
    assert [row["vhost"] for row in seen] == ["mine"]
    for vhost, expected in (("mine", 204), ("theirs", 401)):
        path = f"/api/policies/{vhost}/p"
        assert site.put(path, POLICY | {"priority": 1}, user="u").status == expected
        assert site.delete(path, user="u").status == expected


def test_the_parameters_of_virtual_hosts_are_their_limits() -> None:
    site = HttpSite()
    path = "/api/parameters/vhost-limits/%2F/limits"
    assert site.get("/api/parameters").json == []
    assert [site.put(path, {"value": {"max-queues": 3}}).status for _ in range(2)] == [201, 204]
    shown = {"vhost": "/", "component": "vhost-limits", "name": "limits", "value": {"max-queues": 3}}
    for some in ("", "/vhost-limits", "/vhost-limits/%2F"):
        assert site.get(f"/api/parameters{some}").json == [shown]
    assert site.get(path).json == shown
    assert site.get("/api/parameters/shovel").json == []
    assert [site.delete(path).status for _ in range(2)] == [204, 404]


@pytest.mark.parametrize(
    ("path", "body", "reason"),
    [
        ("shovel/%2F/s", {"value": {}}, "component shovel not found; the only one here is vhost-limits"),
        ("vhost-limits/%2F/other", {"value": {}}, "the limits of a virtual host have the name limits"),
        ("vhost-limits/%2F/limits", {"value": {"max": 1}}, "max is no limit"),
        ("vhost-limits/%2F/limits", {"value": {"max-queues": "1"}}, "max-queues must be a whole number"),
        ("vhost-limits/%2F/limits", {"value": 1}, "value: an object is needed"),
    ],
)
def test_an_invalid_parameter_is_refused_with_the_reason(path: str, body: dict[str, Any], reason: str) -> None:
    answer = HttpSite().put(f"/api/parameters/{path}", body)
    assert answer.status == 400
    assert reason in answer.json["reason"]


def test_global_parameters_are_set_shown_and_deleted() -> None:
    site = HttpSite()
    path = "/api/global-parameters/a%2Fb"
    assert site.put(path, {}).status == 400
    assert [site.put(path, {"value": {"k": [1]}}).status for _ in range(2)] == [201, 204]
    assert site.get("/api/global-parameters").json == [site.get(path).json] == [{"name": "a/b", "value": {"k": [1]}}]
    assert [site.delete(path).status for _ in range(2)] == [204, 404]
