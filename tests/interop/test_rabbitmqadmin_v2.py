"""RabbitMQ's newer command-line tool for the management API, `rabbitmqadmin` 2, unmodified. `.ci/run` compiles it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest

from tests.broker import wait_until
from tests.interop.admin_tools import Admin
from tests.unit.sources import ROOT

TOOL = ROOT / ".venv" / "rabbitmqadmin-2" / "bin" / "rabbitmqadmin"

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not TOOL.exists(), reason="rabbitmqadmin 2 is missing; .ci/run compiles it"),
]


class Tool(Admin):
    """The program, with tables that can be read again."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, (str(TOOL),))

    def rows(self, *args: str) -> list[dict[str, str]]:
        """Return the rows of a table as texts, by column. Of cells with several lines, the first one is returned."""
        lines = [line.strip("|").split("|") for line in self.table(*args) if line.startswith("|")]
        head, *rows = [[cell.strip() for cell in line] for line in lines if not set("".join(line)) <= set("-: ")]
        return [dict(zip(head, row, strict=True)) for row in rows if row[0]]

    def table(self, *args: str) -> list[str]:
        return self.done("--table-style", "markdown", *args).stdout.splitlines()


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tool]:
    found = Tool(tmp_path_factory.mktemp("rabbitmqadmin"))
    with found.prepared():
        yield found


@pytest.mark.parametrize(
    ("what", "column", "value"),
    [
        ("queues", "name", "a/b"),
        ("exchanges", "name", "amq.topic"),
        ("bindings", "routing_key", "k"),
        ("vhosts", "name", "/"),
        ("users", "tags", "administrator"),
        ("permissions", "configure", ".*"),
        ("connections", "server_hostname", "127.0.0.1"),
    ],
)
def test_it_lists_what_there_is(admin: Tool, what: str, column: str, value: str) -> None:
    assert value in [row[column] for row in admin.rows("list", what)]


def test_it_lists_the_broker_as_a_node(admin: Tool) -> None:
    assert "escrowmq@" in admin.done("list", "nodes").stdout


def test_it_lists_consumers(admin: Tool) -> None:
    with pika.BlockingConnection(pika.URLParameters(admin.url)) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=7)
        channel.basic_consume("a/b", lambda *_: None, consumer_tag="mine")
        (row,) = admin.rows("list", "consumers")
    assert (row["queue"], row["consumer_tag"], row["prefetch_count"]) == ("a/b", "mine", "7")


@pytest.mark.parametrize("what", ["policies", "operator_policies", "parameters", "vhost_limits", "user_limits"])
def test_a_list_of_nothing_is_empty(admin: Tool, what: str) -> None:
    assert admin.rows("list", what) == []


def test_it_sets_policies(admin: Tool) -> None:
    given = ("--name", "p", "--pattern", "^a/", "--definition", '{"max-length": 3}')
    admin.done("declare", "policy", *given, "--apply-to", "queues", "--priority", "2")
    admin.done("declare", "operator_policy", *given, "--apply-to", "queues", "--priority", "2")
    for kind in ("policies", "operator_policies"):
        assert [(row["name"], row["pattern"]) for row in admin.rows("list", kind)] == [("p", "^a/")]
    admin.done("delete", "policy", "--name", "p")
    admin.done("delete", "operator_policy", "--name", "p")


def test_it_declares_and_deletes_what_there_can_be(admin: Tool) -> None:
    end = ("--source", "made", "--destination-type", "queue", "--destination", "made", "--routing-key", "a.#")
    for command in (
        ("declare", "vhost", "--name", "made"),
        ("declare", "user", "--name", "made", "--password", "secret", "--tags", "monitoring"),
        ("declare", "permissions", "--user", "made", "--configure", ".*", "--read", ".*", "--write", ".*"),
        ("declare", "exchange", "--name", "made", "--type", "topic"),
        ("declare", "queue", "--name", "made", "--type", "classic", "--arguments", '{"x-max-length": 5}'),
        ("declare", "queue", "--name", "made-quorum", "--type", "quorum"),
        ("declare", "stream", "--name", "made-stream", "--expiration", "1D"),
        ("declare", "binding", *end),
        ("declare", "vhost_limit", "--name", "max-queues", "--value", "7"),
        ("declare", "user_limit", "--user", "made", "--name", "max-channels", "--value", "9"),
    ):
        admin.done("--vhost", "made", *command)
    kinds = {row["name"]: row["queue_type"] for row in admin.rows("--vhost", "made", "list", "queues")}
    assert kinds == {"made": "classic", "made-quorum": "quorum", "made-stream": "stream"}
    assert [row["username"] for row in admin.rows("list", "user_limits")] == ["made"]
    for command in (
        ("delete", "user_limit", "--user", "made", "--name", "max-channels"),
        ("delete", "vhost_limit", "--name", "max-queues"),
        ("delete", "binding", *end),
        ("delete", "queue", "--name", "made"),
        ("delete", "queue", "--name", "made-quorum"),
        ("delete", "stream", "--name", "made-stream"),
        ("delete", "exchange", "--name", "made"),
        ("delete", "permissions", "--user", "made"),
        ("delete", "user", "--name", "made"),
        ("delete", "vhost", "--name", "made"),
    ):
        admin.done("--vhost", "made", *command)
    for listed in ("exchanges", "queues", "users", "vhosts", "bindings"):
        assert "made" not in admin.done("list", listed).stdout


def test_it_publishes_gets_and_purges(admin: Tool) -> None:
    admin.done("declare", "queue", "--name", "posts", "--type", "classic")
    properties = '{"delivery_mode": 2, "headers": {"n": 1}}'
    for payload in ("hello", "world"):
        done = admin.done(
            "publish", "message", "--routing-key", "posts", "--payload", payload, "--properties", properties
        )
        assert "routed" in done.stdout
    rows = admin.rows("get", "messages", "--queue", "posts", "--count", "2", "--ack-mode", "ack_requeue_true")
    assert [(row["payload"], row["redelivered"]) for row in rows] == [("hello", "false"), ("world", "false")]
    admin.done("purge", "queue", "--name", "posts")
    assert admin.rows("get", "messages", "--queue", "posts") == []
    admin.done("delete", "queue", "--name", "posts")


def test_it_exports_and_imports_definitions(admin: Tool, tmp_path: Path) -> None:
    file = tmp_path / "definitions.json"
    admin.done("definitions", "export", "--file", str(file))
    document = json.loads(file.read_bytes())
    assert {row["name"] for row in document["queues"]} >= {"orders", "a/b"}
    document["queues"].append(
        {"vhost": "/", "name": "imported", "durable": True, "auto_delete": False, "arguments": {}}
    )
    file.write_text(json.dumps(document))
    admin.done("definitions", "import", "--file", str(file))
    assert "imported" in [row["name"] for row in admin.rows("list", "queues")]
    admin.done("delete", "queue", "--name", "imported")


def test_it_closes_a_connection(admin: Tool) -> None:
    before = {row["name"] for row in admin.rows("list", "connections")}
    connection = pika.BlockingConnection(pika.URLParameters(admin.url))
    (name,) = {row["name"] for row in admin.rows("list", "connections")} - before
    admin.done("close", "connection", "--name", name)
    wait_until(lambda: {row["name"] for row in admin.rows("list", "connections")} == before)
    with pytest.raises(pika.exceptions.AMQPError):
        connection.channel()


def test_it_shows_the_overview_and_what_came_and_went(admin: Tool) -> None:
    assert "EscrowMQ" in admin.done("show", "overview").stdout
    (row,) = [line for line in admin.table("show", "churn") if "Queues and streams created" in line]
    assert int(row.split("|")[2]) >= 2


@pytest.mark.parametrize(
    "check",
    [
        ("local_alarms",),
        ("cluster_wide_alarms",),
        ("node_is_quorum_critical",),
        ("protocol_listener", "--protocol", "amqp"),
    ],
)
def test_health_checks_pass(admin: Tool, check: tuple[str, ...]) -> None:
    assert "passed" in admin.done("health_check", *check).stdout


def test_a_refusal_is_an_error(admin: Tool) -> None:
    assert admin.run("health_check", "port_listener", "--port", "1").returncode != 0
    assert admin.run("declare", "queue", "--name", "orders", "--type", "quorum").returncode != 0
    assert admin.run("list", "queues", password="wrong").returncode != 0
    assert admin.run("delete", "queue", "--name", "none").returncode != 0
