"""Changes to virtual hosts, users, permissions, limits and connections over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.admin.http.sites import HttpSite
from tests.unit.admin.processes import FakeConnection

HASH = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"
ALL = {"configure": ".*", "write": ".*", "read": ".*"}


def test_a_virtual_host_is_made_once_and_deleted_once() -> None:
    site = HttpSite()
    bodies: list[object] = [None, {}]
    assert [site.put("/api/vhosts/a%2Fb", body).status for body in bodies] == [201, 204]
    assert site.get("/api/vhosts/a%2Fb").json["name"] == "a/b"
    assert [site.delete("/api/vhosts/a%2Fb").status for _ in range(2)] == [204, 404]


def test_who_makes_a_virtual_host_has_all_permissions_in_it() -> None:
    site = HttpSite()
    site.server.broker.access.add_user("other", "hash of password of other", ("administrator",))
    site.put("/api/vhosts/made", {}, "other")
    assert site.get("/api/vhosts/made/permissions").json == [{"user": "other", "vhost": "made", **ALL}]
    site.delete("/api/permissions/made/other")
    assert site.put("/api/vhosts/made", {}, "other").status == 204
    assert site.get("/api/vhosts/made/permissions").json == []


@pytest.mark.parametrize(
    ("body", "tags"),
    [
        ({"password": "p", "tags": "monitoring, x"}, ["monitoring", "x"]),
        ({"password": "p", "tags": ["policymaker"]}, ["policymaker"]),
        ({"password": "p", "tags": ""}, []),
        ({"password": "p", "administrator": True}, ["administrator"]),
        ({"password": "p", "administrator": "false"}, []),
    ],
)
def test_a_user_has_tags(body: dict[str, Any], tags: list[str]) -> None:
    site = HttpSite()
    assert [site.put("/api/users/alice", body).status for _ in range(2)] == [201, 204]
    assert site.get("/api/users/alice").json["tags"] == tags
    assert site.server.broker.access.users["alice"].password_hash == "hash of p"


def test_tags_that_give_no_rights_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    site = HttpSite()
    answer = site.put("/api/users/alice", {"password": "p", "tags": 'monitoring, admin"é'})
    assert answer.status == 201
    assert answer.headers["warning"].isascii()
    assert answer.headers["warning"].startswith('299 escrowmq "these tags give no rights')
    assert [line for line in caplog.messages if "give no rights" in line]
    assert "warning" not in site.put("/api/users/alice", {"password": "p", "tags": "monitoring"}).headers


def test_a_user_may_have_a_hash_of_a_password_or_none() -> None:
    site = HttpSite()
    users = site.server.broker.access.users
    assert site.put("/api/users/alice", {"password_hash": HASH, "tags": ""}).status == 201
    assert users["alice"].password_hash == "$rabbitmq$sha256$" + HASH
    assert site.put("/api/users/alice", {"password_hash": "", "tags": ""}).status == 204
    assert users["alice"].password_hash == ""
    assert site.put("/api/users/bob", {"tags": ""}).status == 201
    assert users["bob"].password_hash == ""


@pytest.mark.parametrize(
    "body",
    [
        {"password": "p"},
        {"password": "", "tags": ""},
        {"password": "p", "password_hash": HASH, "tags": ""},
        {"password_hash": "x", "tags": ""},
        {"password_hash": HASH, "hashing_algorithm": "rot13", "tags": ""},
        {"password": 1, "tags": ""},
        {"password": "p", "tags": [1]},
        {"password": "p", "tags": 1},
    ],
)
def test_an_invalid_user_is_refused(body: dict[str, Any]) -> None:
    site = HttpSite()
    answer = site.put("/api/users/alice", body)
    assert (answer.status, answer.json["error"]) == (400, "bad_request")
    assert "alice" not in site.server.broker.access.users


def test_users_are_deleted() -> None:
    site = HttpSite()
    for name in ("a", "b", "c"):
        site.put(f"/api/users/{name}", {"tags": ""})
    assert [site.delete("/api/users/a").status for _ in range(2)] == [204, 404]
    assert [row["name"] for row in site.get("/api/users/without-permissions").json] == ["b", "c"]
    assert site.post("/api/users/bulk-delete", {"users": ["b", "none", "b"]}).status == 204
    assert site.post("/api/users/bulk-delete", {"users": "b"}).status == 400
    assert set(site.server.broker.access.users) == {"guest", "c"}


def test_permissions_are_set_and_removed() -> None:
    site = HttpSite()
    site.put("/api/users/u", {"tags": ""})
    assert [site.put("/api/permissions/%2F/u", ALL).status for _ in range(2)] == [201, 204]
    assert site.get("/api/permissions/%2F/u").json["read"] == ".*"
    assert [site.delete("/api/permissions/%2F/u").status for _ in range(2)] == [204, 404]
    assert site.put("/api/permissions/%2F/u", ALL | {"read": "("}).status == 400
    assert site.put("/api/permissions/%2F/u", {"read": ".*"}).json["reason"] == "key_missing: configure"
    assert site.put("/api/permissions/none/u", ALL).status == 404
    assert site.put("/api/permissions/%2F/none", ALL).status == 404


def test_topic_permissions_are_set_and_removed() -> None:
    site = HttpSite()
    body = {"exchange": "amq.topic", "write": "^a", "read": ".*"}
    assert [site.put("/api/topic-permissions/%2F/guest", body).status for _ in range(2)] == [201, 204]
    assert [row["write"] for row in site.get("/api/topic-permissions/%2F/guest").json] == ["^a"]
    assert [site.delete("/api/topic-permissions/%2F/guest").status for _ in range(2)] == [204, 404]
    assert site.get("/api/topic-permissions/%2F/guest").status == 404


@pytest.mark.parametrize(
    ("path", "owner", "limits"),
    [
        ("vhost-limits/%2F", {"vhost": "/"}, ("max-connections", "max-queues")),
        ("user-limits/guest", {"user": "guest"}, ("max-connections", "max-channels")),
    ],
)
def test_limits_are_set_one_by_one(path: str, owner: dict[str, str], limits: tuple[str, str]) -> None:
    site = HttpSite()
    assert site.get("/api/" + path).json == []
    for number, limit in enumerate(limits):
        assert site.put(f"/api/{path}/{limit}", {"value": number}).status == 204
    everywhere = path.partition("/")[0]
    for each in (path, everywhere):
        assert site.get("/api/" + each).json == [{**owner, "value": {limits[0]: 0, limits[1]: 1}}]
    assert site.delete(f"/api/{path}/{limits[0]}").status == 204
    assert site.put(f"/api/{path}/{limits[1]}", {"value": -1}).status == 204
    assert site.get("/api/" + path).json == []
    assert site.put(f"/api/{path}/none", {"value": 1}).status == 400
    assert site.put(f"/api/{path}/{limits[0]}", {"value": "x"}).status == 400
    assert site.put(f"/api/{everywhere}/none/{limits[0]}", {"value": 1}).status == 404


def test_a_connection_is_closed_by_its_user_or_an_administrator() -> None:
    site = HttpSite()
    site.server.broker.access.add_user("u", "hash", ("monitoring",))
    found = [FakeConnection("10.0.0.1:1", user="u"), FakeConnection("10.0.0.1:2", user="guest")]
    site.broker.process.connections = dict.fromkeys(found)
    assert site.delete("/api/connections/10.0.0.1%3A2", "u").status == 401
    assert site.delete("/api/connections/10.0.0.1%3A1", "u").status == 204
    assert site.delete("/api/connections/10.0.0.1%3A2", headers={"x-reason": "maintenance"}).status == 204
    assert site.delete("/api/connections/10.0.0.1%3A9").status == 404
    assert [each.reasons for each in found] == [["Closed via management plugin"], ["maintenance"]]


def test_the_connections_of_a_user_are_closed_together() -> None:
    site = HttpSite()
    site.server.broker.access.add_user("u", "hash", ("management",))
    found = [FakeConnection(f"10.0.0.1:{n}", user=user) for n, user in enumerate(("u", "guest", "u"))]
    site.broker.process.connections = dict.fromkeys(found)
    assert [row["user"] for row in site.get("/api/connections/username/u").json] == ["u", "u"]
    assert site.delete("/api/connections/username/guest", "u").status == 401
    assert site.delete("/api/connections/username/u", "u").status == 204
    assert [len(each.reasons) for each in found] == [1, 0, 1]


def test_one_topic_permission_is_removed() -> None:
    site = HttpSite()
    for exchange in ("amq.topic", "other"):
        body = {"exchange": exchange, "write": "^a", "read": ".*"}
        site.put("/api/topic-permissions/%2F/guest", body)
    assert site.delete("/api/topic-permissions/%2F/guest/other").status == 204
    assert [row["exchange"] for row in site.get("/api/topic-permissions/%2F/guest").json] == ["amq.topic"]
