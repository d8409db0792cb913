"""The reading half of the management API: answers, and who may see them."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.admin.http.management import READ_ROUTES
from escrowmq.wire.amqp091 import spec
from tests.unit.admin.http.sites import HttpSite
from tests.unit.admin.processes import FakeConnection
from tests.unit.wire.amqp091.clients import pair

NAMES = {
    "vhost": "%2F",
    "user": "guest",
    "name": "q",
    "source": "amq.topic",
    "destination": "a%2Fb",
    "properties": "k.%2523",
    "port": "5672",
    "protocol": "amqp091",
}
NODE = "escrowmq@h"


def worked() -> HttpSite:
    """Return a site with the queues `q` and `a/b`, a binding, a message and a consumer."""
    server, client = pair()
    client.declare(1, "q", arguments={"x-max-length": 5})
    client.declare(1, "a/b")
    client.send(1, spec.QueueBind("a/b", "amq.topic", "k.#"))
    client.send(1, spec.ExchangeBind("amq.fanout", "amq.topic", "k.#"))
    client.publish(1, "q", b"1", b"2")
    client.send(1, spec.BasicConsume("q", "tag", no_wait=True))
    site = HttpSite(server)
    site.broker.process.connections[FakeConnection("10.0.0.1:99")] = None
    access = server.broker.access
    server.broker.directory.add_vhost("other")
    for name, tags in (("m", ("monitoring",)), ("u", ("management",)), ("p", ("policymaker",)), ("none", ())):
        access.add_user(name, "hash", tags)
    access.set_permission("u", "other", ".*", ".*", ".*")
    access.set_topic_permission("guest", "/", "amq.topic", ".*", ".*")
    return site


def shown(path: str, user: str = "guest") -> Any:
    answer = worked().get("/api/" + path, user)
    assert answer.status == 200, answer.body
    return answer.json


@pytest.mark.parametrize("path", READ_ROUTES)
def test_every_path_answers_an_administrator(path: str) -> None:
    names = NAMES | ({"name": NODE} if path.startswith("nodes") else {})
    names |= {"name": "amq.topic"} if path.startswith("exchanges") else {}
    names |= {"name": "10.0.0.1:99"} if path.startswith("connections") else {}
    names |= {"destination": "amq.fanout"} if "}/e/{destination" in path else {}
    answer = worked().get("/api/" + path.format(**names))
    # The disk alarm of the site is on.
    assert answer.status == (503 if path.endswith("alarms") else 200), answer.body


@pytest.mark.parametrize("path", READ_ROUTES)
@pytest.mark.parametrize(("user", "tag"), [("m", "monitoring"), ("u", "management"), ("p", "policymaker")])
def test_a_path_needs_one_of_its_tags(path: str, user: str, tag: str) -> None:
    answer = worked().get("/api/" + path.format(**NAMES), user)
    if tag not in READ_ROUTES[path].tags:
        assert answer.status == 401
    elif user == "m":
        assert answer.status != 401


@pytest.mark.parametrize("path", [path for path in READ_ROUTES if "{vhost}" in path])
def test_a_virtual_host_without_permissions_is_not_shown(path: str) -> None:
    assert worked().get("/api/" + path.format(**NAMES), "u").status == 401


@pytest.mark.parametrize("path", ["queues", "exchanges", "bindings", "consumers", "vhosts"])
def test_lists_have_only_the_virtual_hosts_of_the_user(path: str) -> None:
    key = "name" if path == "vhosts" else "vhost"
    assert {row[key] for row in shown(path, "u")} <= {"other"}
    assert path == "consumers" or "/" in {row[key] for row in shown(path, "m")}


def test_a_connection_has_the_addresses_of_both_ends() -> None:
    (row,) = shown("connections")
    assert (row["host"], row["port"], row["peer_host"], row["peer_port"]) == ("::1", 5672, "10.0.0.1", 99)


def test_a_virtual_host_runs_on_the_only_node() -> None:
    assert shown("vhosts/%2F")["cluster_state"] == {NODE: "running"}


def test_a_user_sees_only_its_own_connections() -> None:
    assert shown("connections", "u") == []
    assert [row["name"] for row in shown("connections", "m")] == ["10.0.0.1:99"]


@pytest.mark.parametrize(
    "path",
    [
        *(
            "queues/none",
            "queues/%2F/none",
            "queues/%2F/..%2Fq",
            "queues/%2F/../q",
            "queues/%FF",
            "queues/%2F/none/bindings",
        ),
        *("exchanges/%2F/none", "users/absent", "users/absent/permissions", "permissions/%2F/absent", "vhosts/none"),
        *("nodes/none", "connections/none", "no", ""),
    ],
)
def test_what_does_not_exist_is_not_found(path: str) -> None:
    assert worked().get("/api/" + path).status == 404


def test_a_queue_has_its_figures_and_counters() -> None:
    queue = shown("queues/%2F/q")
    assert (queue["messages"], queue["messages_ready"], queue["messages_unacknowledged"]) == (2, 0, 2)
    assert (queue["type"], queue["durable"], queue["arguments"]) == ("classic", True, {"x-max-length": 5})
    assert (queue["state"], queue["node"], queue["consumers"]) == ("running", NODE, 1)
    assert (queue["message_stats"]["publish"], queue["message_stats"]["deliver"]) == (2, 2)


def test_a_name_with_an_encoded_slash_is_found() -> None:
    assert shown("queues/%2F/a%2Fb")["name"] == "a/b"
    keys = [(row["source"], row["routing_key"], row["properties_key"]) for row in shown("queues/%2F/a%2Fb/bindings")]
    assert keys == [("", "a/b", "a%2Fb"), ("amq.topic", "k.#", "k.%23")]


def test_the_default_exchange_has_a_name_in_paths() -> None:
    assert shown("exchanges/%2F/amq.default")["name"] == ""
    assert len(shown("exchanges/%2F/amq.default/bindings/source")) == 2
    binding = shown("exchanges/%2F/amq.topic/bindings/source")[0]
    assert (binding["destination"], binding["destination_type"]) == ("a/b", "queue")


def test_the_overview_has_sums() -> None:
    found = shown("overview")
    assert found["object_totals"]["queues"] == 2
    assert found["queue_totals"]["messages_unacknowledged"] == 2
    assert (found["message_stats"]["publish"], found["message_stats"]["deliver"]) == (2, 2)
    assert (found["churn_rates"]["connection_created"], found["churn_rates"]["connection_closed"]) == (5, 3)
    assert found["churn_rates"]["queue_created"] == 2
    assert found["listeners"] == [{"node": NODE, "protocol": "amqp", "ip_address": "127.0.0.1", "port": 5672}]
    assert "x-partitioned" in {each["name"] for each in found["exchange_types"]}


def test_users_are_shown_without_their_hashes() -> None:
    assert shown("users/m") == {"name": "m", "tags": ["monitoring"], "limits": {}}


def test_a_consumer_names_its_queue() -> None:
    (consumer,) = shown("consumers/%2F")
    assert (consumer["queue"], consumer["consumer_tag"]) == ({"name": "q", "vhost": "/"}, "tag")
    assert (consumer["ack_required"], consumer["active"]) == (True, True)


def test_a_connection_has_the_address_of_its_client() -> None:
    found = shown("connections/10.0.0.1:99")
    assert (found["peer_host"], found["peer_port"], found["user"]) == ("10.0.0.1", 99, "guest")


def test_lists_take_columns_order_and_pages() -> None:
    found = shown("queues?sort=name&columns=name&page=1&page_size=1")
    assert (found["items"], found["page_count"]) == ([{"name": "a/b"}], 2)
    assert worked().get("/api/queues?page=0").status == 400


def test_a_health_check_names_the_alarms() -> None:
    answer = worked().get("/api/health/checks/alarms")
    assert (answer.status, answer.json["reason"]) == (503, "alarms are in effect: disk")


@pytest.mark.parametrize(
    ("path", "missing"), [("port-listener/1", 1), ("protocol-listener/mqtt", "mqtt"), ("port-listener/x", None)]
)
def test_a_listener_that_is_missing_is_a_failure(path: str, missing: object) -> None:
    answer = worked().get("/api/health/checks/" + path)
    assert answer.status == (404 if missing is None else 503)
    assert answer.json.get("missing") == missing


def test_a_path_may_end_with_a_slash() -> None:
    assert shown("users/") == shown("users")
    assert worked().get("/api/").status == 404
