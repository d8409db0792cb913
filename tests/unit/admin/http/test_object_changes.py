"""Changes to exchanges, queues, bindings and messages over HTTP."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import pytest

from tests.unit.admin.http.sites import HttpSite

Q = "/api/queues/%2F/q"
PUBLISHED = {"routing_key": "q", "payload": "body", "payload_encoding": "string", "properties": {}}


def site(*queues: str) -> HttpSite:
    """Return a site with queues, and the user `u`, who may use only what is named `mine`."""
    made = HttpSite()
    made.server.broker.access.add_user("u", "hash", ("management",))
    made.server.broker.access.set_permission("u", "/", "mine", "mine", "mine")
    made.server.broker.directory.add_vhost("other")
    for queue in queues:
        assert made.put(f"/api/queues/%2F/{queue}", {}).status == 201
    return made


@pytest.mark.parametrize("body", [{}, {"durable": "true", "arguments": []}, {"auto_delete": False, "node": None}])
def test_a_queue_is_declared(body: dict[str, Any]) -> None:
    made = site()
    assert [made.put(Q, body).status for _ in range(2)] == [201, 204]
    assert made.get(Q).json["durable"] is True


def test_a_queue_that_differs_is_refused_with_the_reply_of_amqp() -> None:
    answer = site("q").put(Q, {"durable": False})
    assert (answer.status, answer.json["error"]) == (400, "bad_request")
    assert answer.json["reason"].startswith("406 PRECONDITION_FAILED - inequivalent arg 'durable' for queue 'q'")


def test_a_queue_is_deleted_purged_and_not_found_afterwards() -> None:
    made = site("q")
    made.post("/api/exchanges/%2F/amq.default/publish", PUBLISHED)
    assert made.delete(Q + "?if-empty=true").status == 400
    assert made.delete(Q + "?if-empty=maybe").status == 400
    assert made.delete(Q + "/contents").status == 204
    assert made.delete(Q + "?if-empty=true&if-unused=true").status == 204
    assert made.delete(Q).status == made.delete(Q + "/contents").status == 404


def test_an_exchange_is_declared_and_deleted() -> None:
    made = site()
    path = "/api/exchanges/%2F/x"
    assert [made.put(path, {"type": "topic"}).status for _ in range(2)] == [201, 204]
    assert made.put(path, {"type": "fanout"}).status == 400
    assert made.put(path, {"type": "none"}).status == 400
    assert [made.delete(path + "?if-unused=true").status for _ in range(2)] == [204, 404]
    assert made.delete("/api/exchanges/%2F/amq.default").status == 401


@pytest.mark.parametrize("kind", ["q", "e"])
def test_a_binding_is_made_shown_and_removed(kind: str) -> None:
    made = site("q")
    ends = "/api/bindings/%2F/e/amq.topic/" + ("q/q" if kind == "q" else "e/amq.fanout")
    answer = made.post(ends, {"routing_key": "a.#", "arguments": {}})
    assert answer.status == 201
    assert answer.headers["location"] == ("q" if kind == "q" else "amq.fanout") + "/a.%2523"
    assert [row["properties_key"] for row in made.get(ends).json] == ["a.%23"]
    one = ends + "/a.%2523"
    assert made.get(one).json["routing_key"] == "a.#"
    assert made.delete(one).status == 204
    assert made.delete(one).status == made.get(one).status == 404
    assert made.get(ends).json == []


def test_a_message_is_published_and_taken() -> None:
    made = site("q")
    answer = made.post("/api/exchanges/%2F/amq.default/publish", PUBLISHED)
    assert (answer.status, answer.json) == (200, {"routed": True})
    assert made.post("/api/exchanges/%2F/amq.direct/publish", PUBLISHED).json == {"routed": False}
    wanted = {"count": 5, "ackmode": "ack_requeue_false", "encoding": "auto"}
    (row,) = made.post(Q + "/get", wanted).json
    assert (row["payload"], row["properties"], row["exchange"]) == ("body", [], "")
    assert made.post(Q + "/get", wanted).json == []


@pytest.mark.parametrize(
    ("mode", "left"),
    [("ack_requeue_true", 1), ("reject_requeue_true", 1), ("ack_requeue_false", 0), ("reject_requeue_false", 0)],
)
def test_the_mode_decides_what_becomes_of_the_messages(mode: str, left: int) -> None:
    made = site("q")
    made.post("/api/exchanges/%2F/amq.default/publish", PUBLISHED)
    wanted = {"count": "5", "ackmode": mode, "encoding": "base64", "truncate": 2}
    (row,) = made.post(Q + "/get", wanted).json
    assert (row["payload"], row["payload_bytes"]) == ("Ym8=", 4)
    assert made.get(Q).json["messages"] == left


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"count": 1},
        {"count": 1, "encoding": "auto", "ackmode": "x"},
        {"count": 0, "encoding": "auto"},
        {"count": 1, "encoding": "x"},
        [],
        "x",
    ],
)
def test_an_invalid_get_is_refused(body: object) -> None:
    assert site("q").post(Q + "/get", body).status == 400


@pytest.mark.parametrize("missing", ["routing_key", "payload", "payload_encoding"])
def test_an_incomplete_publish_is_refused(missing: str) -> None:
    body = {key: value for key, value in PUBLISHED.items() if key != missing}
    answer = site().post("/api/exchanges/%2F/amq.default/publish", body)
    assert (answer.status, answer.json["reason"]) == (400, f"key_missing: {missing}")


@pytest.mark.rule("SEC-1")
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "queues/{}/q", {}),
        ("DELETE", "queues/{}/q", {}),
        ("DELETE", "queues/{}/q/contents", {}),
        ("POST", "queues/{}/q/get", {"count": 1, "encoding": "auto"}),
        ("PUT", "exchanges/{}/x", {}),
        ("DELETE", "exchanges/{}/amq.topic", {}),
        ("POST", "bindings/{}/e/amq.topic/q/q", {}),
        ("POST", "bindings/{}/e/amq.topic/e/amq.topic", {}),
        ("DELETE", "bindings/{}/e/amq.topic/q/q/~", {}),
    ],
)
def test_the_user_needs_permissions_and_the_virtual_host(method: str, path: str, body: dict[str, Any]) -> None:
    made = site("q")
    for vhost in ("%2F", "other"):
        answer = made.call(method, "/api/" + path.format(vhost), body, "u")
        assert (answer.status, answer.json["error"]) == (401, "not_authorized")
    assert made.call(method, "/api/" + path.format("none"), body, "u").status == 404
    assert made.get(Q).status == 200


@pytest.mark.rule("SEC-1")
def test_a_publish_without_permission_is_a_bad_request() -> None:
    answer = site("q").post("/api/exchanges/%2F/amq.default/publish", PUBLISHED, "u")
    assert answer.status == 400
    assert answer.json["reason"].startswith("403 ACCESS_REFUSED - ")


@pytest.mark.parametrize("name", ["..", ".", "..%2F..%2Fetc%2Fpasswd", "%2E%2E", "a%00b", "%C3%A9", "<script>"])
def test_a_name_is_only_a_name(name: str) -> None:
    made = site()
    assert made.put(f"/api/queues/%2F/{name}", {}).status == 201
    assert made.get(f"/api/queues/%2F/{name}").status == 200
    assert len(made.get("/api/queues").json) == 1
    assert made.put(f"/api/vhosts/{name}", {}).status == 201
    assert made.delete(f"/api/vhosts/{name}").status == 204
    assert made.delete(f"/api/queues/%2F/{name}").status == 204


@pytest.mark.parametrize("name", ["%FF", "x" * 256, "%ED%A0%80"])
def test_a_name_that_clients_cannot_use_is_refused(name: str) -> None:
    assert site().put(f"/api/queues/%2F/{name}", {}).status in {400, 404}
    assert site().put(f"/api/vhosts/{name}", {}).status in {400, 404}


@pytest.mark.parametrize("name", ["a%0Ab", "%0A", "a%0D%0Ab%00", "%E2%80%A8"])
def test_objects_with_control_characters_in_their_names_have_paths(name: str) -> None:
    made = site()
    assert made.put(f"/api/queues/%2F/{name}", {}).status == 201
    assert made.get(f"/api/queues/%2F/{name}").json["name"] == unquote(name)
    assert made.delete(f"/api/queues/%2F/{name}").status == 204
