"""RabbitMQ's own command-line tool for the management API, `rabbitmqadmin` of Debian's package, unmodified."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from tests.broker import wait_until
from tests.interop.admin_tools import Admin
from tests.unit.sources import ROOT

FETCHED = ROOT / ".venv" / "rabbitmqadmin"
"""Where `.ci/run` puts the tool, because installing the package would start a server."""
TOOL = str(FETCHED) if FETCHED.exists() else shutil.which("rabbitmqadmin")

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(TOOL is None, reason="rabbitmqadmin is missing; .ci/run fetches it"),
]


class Script(Admin):
    """The script."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, (sys.executable, str(TOOL)))

    def rows(self, *args: str) -> Any:
        done = self.run("--format", "raw_json", *args)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Script]:
    found = Script(tmp_path_factory.mktemp("rabbitmqadmin"))
    with found.prepared():
        yield found


def test_it_lists_queues_with_chosen_columns(admin: Script) -> None:
    found = admin.rows("list", "queues", "name", "messages")
    assert {row["name"]: row["messages"] for row in found} == {"orders": 1, "a/b": 0}
    done = admin.run("--vhost", "/", "list", "queues", "name", "messages")
    assert "| orders | 1        |" in done.stdout


@pytest.mark.parametrize(
    ("what", "key", "value"),
    [
        ("exchanges", "name", "amq.topic"),
        ("bindings", "routing_key", "k"),
        ("vhosts", "name", "/"),
        ("users", "name", "guest"),
        ("permissions", "user", "guest"),
        ("connections", "user", "guest"),
        ("nodes", "running", True),
    ],
)
def test_it_lists_what_there_is(admin: Script, what: str, key: str, value: object) -> None:
    assert value in [row[key] for row in admin.rows("list", what)]


def test_queues_of_clients_follow_its_policies(admin: Script) -> None:
    with pika.BlockingConnection(pika.URLParameters(admin.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()

        def count() -> int:
            return int(channel.queue_declare("events.a", durable=True, passive=True).method.message_count)

        channel.queue_declare("events.a", durable=True)
        channel.queue_declare("late", durable=True)
        for body in (b"1", b"2", b"3"):
            channel.basic_publish("", "events.a", body, pika.BasicProperties(delivery_mode=2))
        definition = {"max-length": 2, "dead-letter-exchange": "", "dead-letter-routing-key": "late"}
        admin.done(
            "declare", "policy", "name=p", "pattern=^events", f"definition={json.dumps(definition)}", "priority=1"
        )
        assert count() == 2
        (row,) = [row for row in admin.rows("list", "queues") if row["name"] == "events.a"]
        assert (row["policy"], row["effective_policy_definition"]) == ("p", definition)
        limits = ["name=o", "pattern=", 'definition={"message-ttl": 1}', "apply-to=classic_queues"]
        admin.done("declare", "operator_policy", *limits)
        wait_until(lambda: count() == 0)
        (row,) = [row for row in admin.rows("list", "operator_policies") if row["name"] == "o"]
        assert (row["apply-to"], row["definition"]) == ("classic_queues", {"message-ttl": 1})
        admin.done("delete", "operator_policy", "name=o")
        admin.done("delete", "policy", "name=p")
        assert admin.rows("list", "policies") == admin.rows("list", "operator_policies") == []
        for body in (b"4", b"5", b"6"):
            channel.basic_publish("", "events.a", body)
        assert count() == 3
        channel.queue_delete("events.a")
        channel.queue_delete("late")


def test_it_sets_parameters(admin: Script) -> None:
    limits = ["component=vhost-limits", "name=limits"]
    admin.done("declare", "parameter", *limits, 'value={"max-queues": 900}')
    (row,) = admin.rows("list", "parameters")
    assert (row["component"], row["value"]) == ("vhost-limits", {"max-queues": 900})
    admin.done("delete", "parameter", *limits)
    refused = admin.run("declare", "parameter", "component=shovel", "name=s", "value={}")
    assert "component shovel not found" in refused.stdout + refused.stderr


def test_it_declares_and_deletes_what_there_can_be(admin: Script) -> None:
    for kind, given in (
        ("vhost", ["name=made"]),
        ("user", ["name=made", "password=secret", "tags=monitoring"]),
        ("permission", ["vhost=made", "user=made", "configure=.*", "write=.*", "read=.*"]),
        ("exchange", ["name=made", "type=topic", "auto_delete=true"]),
        ("queue", ["name=made", "durable=false", 'arguments={"x-max-length": 5}']),
        ("queue", ["name=made-quorum", "queue_type=quorum"]),
        ("binding", ["source=made", "destination=made", "routing_key=a.#"]),
        ("binding", ["source=made", "destination=amq.fanout", "destination_type=exchange", 'arguments={"a": 1}']),
        ("vhost_limit", ["vhost=made", "name=max-queues", "value=7"]),
    ):
        admin.done("declare", kind, *given)
    assert [row["arguments"] for row in admin.rows("list", "queues") if row["name"] == "made"] == [{"x-max-length": 5}]
    assert admin.rows("list", "vhost_limits") == [{"vhost": "made", "value": {"max-queues": 7}}]
    keys = {
        row["destination"]: row["properties_key"] for row in admin.rows("list", "bindings") if row["source"] == "made"
    }
    assert keys["made"] == "a.%23"
    for kind, given in (
        ("vhost_limit", ["vhost=made", "name=max-queues"]),
        ("binding", ["source=made", "destination_type=queue", "destination=made", "properties_key=a.%23"]),
        ("queue", ["name=made"]),
        ("queue", ["name=made-quorum"]),
        ("exchange", ["name=made"]),
        ("permission", ["vhost=made", "user=made"]),
        ("user", ["name=made"]),
        ("vhost", ["name=made"]),
    ):
        admin.done("delete", kind, *given)
    for listed in ("exchanges", "queues", "users", "vhosts", "bindings"):
        assert "made" not in str(admin.rows("list", listed))


def test_it_publishes_gets_and_purges(admin: Script) -> None:
    admin.done("declare", "queue", "name=posts")
    assert "Message published" in admin.done("publish", "routing_key=posts", "payload=hello").stdout
    assert "NOT routed" in admin.done("publish", "routing_key=nowhere", "payload=hello").stdout
    properties = 'properties={"delivery_mode": 2, "headers": {"n": 1}}'
    admin.done("publish", "exchange=amq.default", "routing_key=posts", "payload=world", properties)
    first, second = admin.rows("get", "queue=posts", "count=5")
    assert (first["payload"], second["payload"]) == ("hello", "world")
    assert second["properties"] == {"delivery_mode": 2, "headers": {"n": 1}}
    (row,) = admin.rows("get", "queue=posts", "ackmode=ack_requeue_false")
    assert (row["redelivered"], row["message_count"]) == (True, 1)
    admin.done("purge", "queue", "name=posts")
    assert admin.rows("get", "queue=posts") == []


def test_it_exports_and_imports_definitions(admin: Script, tmp_path: Path) -> None:
    file = tmp_path / "definitions.json"
    admin.done("export", str(file))
    document = json.loads(file.read_bytes())
    assert {row["name"] for row in document["queues"]} >= {"orders", "a/b"}
    document["queues"].append({"vhost": "/", "name": "imported", "durable": True, "arguments": {}})
    file.write_text(json.dumps(document))
    admin.done("import", str(file))
    assert "imported" in [row["name"] for row in admin.rows("list", "queues")]
    admin.done("delete", "queue", "name=imported")


def test_it_closes_a_connection(admin: Script) -> None:
    before = {row["name"] for row in admin.rows("list", "connections")}
    connection = pika.BlockingConnection(pika.URLParameters(admin.url))
    (name,) = {row["name"] for row in admin.rows("list", "connections")} - before
    admin.done("close", "connection", f"name={name}")
    wait_until(lambda: {row["name"] for row in admin.rows("list", "connections")} == before)
    with pytest.raises(pika.exceptions.AMQPError):
        connection.channel()


def test_it_prints_why_a_change_is_refused(admin: Script) -> None:
    done = admin.run("declare", "queue", "name=orders", "durable=false")
    assert done.returncode != 0
    assert "PRECONDITION_FAILED - inequivalent arg 'durable'" in done.stdout + done.stderr


def test_it_shows_the_overview(admin: Script) -> None:
    assert "escrowmq@" in admin.run("show", "overview").stdout


def test_a_wrong_password_is_an_error(admin: Script) -> None:
    done = admin.run("list", "queues", password="wrong")
    assert done.returncode != 0
    assert "Access refused" in done.stdout + done.stderr
