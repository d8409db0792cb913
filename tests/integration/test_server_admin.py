"""Managing a running broker with the operator's commands."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest

from tests.broker import BrokerProcess, running_broker, wait_until


def command(broker: BrokerProcess, *args: str, stdin: str = "", code: int = 0) -> str:
    """Run `escrowmq ARGS --data-dir …`, and return its output, or its error if the exit code is not 0."""
    done = subprocess.run(
        [sys.executable, "-m", "escrowmq", *args, "--data-dir", str(broker.data_dir)],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stderr.strip() if code else done.stdout


def as_json(broker: BrokerProcess, *args: str) -> Any:
    return json.loads(command(broker, *args, "--json"))


def connect(broker: BrokerProcess, user: str = "guest", password: str = "guest", vhost: str = "/") -> Any:
    return pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", broker.port, vhost, credentials=pika.PlainCredentials(user, password))
    )


def test_a_user_is_made_permitted_changed_and_deleted_while_the_broker_runs(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        command(broker, "user", "add", "alice", "--password-stdin", "--tag", "ops", stdin="first\n")
        command(broker, "vhost", "add", "orders")
        with pytest.raises(pika.exceptions.ProbableAccessDeniedError):
            connect(broker, "alice", "first", "orders")
        command(broker, "permission", "set", "alice", "orders", "--configure", "^a", "--write", "^a", "--read", "")
        channel = connect(broker, "alice", "first", "orders").channel()
        channel.queue_declare("a")
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="ACCESS_REFUSED"):
            channel.queue_declare("b")
        command(broker, "user", "password", "alice", "--password", "second")
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            connect(broker, "alice", "first", "orders")
        broker.restart()
        connect(broker, "alice", "second", "orders").close()
        assert {"user": "alice", "vhost": "orders", "configure": "^a", "write": "^a", "read": ""} in as_json(
            broker, "permission", "list", "--user", "alice"
        )
        assert as_json(broker, "user", "list")[1] == {
            "name": "alice",
            "tags": ["ops"],
            "password": True,
            "max_connections": None,
            "max_channels": None,
            "access_keys": [],
        }
        connection = connect(broker, "alice", "second", "orders")
        command(broker, "user", "delete", "alice", "--yes")
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="was deleted"):
            connection.sleep(30)
        assert "no such user" in command(broker, "permission", "list", "--user", "alice", code=1)
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            connect(broker, "alice", "second", "orders")


def test_the_change_of_a_command_survives_kill(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        command(broker, "vhost", "add", "v")
        command(broker, "permission", "topic", "set", "guest", "v", "amq.topic", "--write", "^a", "--read", "^b")
        broker.kill()
        broker.start()
        assert [vhost["name"] for vhost in as_json(broker, "vhost", "list")] == ["/", "v"]
        assert as_json(broker, "permission", "topic", "list") == [
            {"user": "guest", "vhost": "v", "exchange": "amq.topic", "write": "^a", "read": "^b"}
        ]


def test_a_vhost_is_deleted_with_its_queues_and_connections(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        command(broker, "vhost", "add", "v")
        command(broker, "permission", "set", "guest", "v", "--configure", ".*", "--write", ".*", "--read", ".*")
        connection = connect(broker, vhost="v")
        connection.channel().queue_declare("q", durable=True)
        assert command(broker, "vhost", "delete", "v", stdin="n\n", code=1).endswith("escrowmq: nothing was deleted")
        command(broker, "vhost", "delete", "v", "--yes")
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
            connection.sleep(30)
        broker.restart()
        assert as_json(broker, "queues") == []


def test_status_and_lists_show_queues_and_connections(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        connection = connect(broker)
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        channel.confirm_delivery()
        for _ in range(3):
            channel.basic_publish("", "q", b"x", pika.BasicProperties(delivery_mode=2))
        channel.basic_get("q")
        status = as_json(broker, "status")
        assert status["queues"] == {"count": 1, "ready": 2, "unsettled": 1, "consumers": 0, "delayed": 0}
        (queue,) = as_json(broker, "queues", "--vhost", "/")
        assert (queue["name"], queue["ready"], queue["unsettled"], queue["consumers"]) == ("q", 2, 1, 0)
        assert status["connections"] == 1
        assert status["alarms"] == []
        assert status["pid"] == broker.pid
        journal = status["journal"]
        assert journal["syncs"] >= 3
        assert journal["records"] >= 4
        assert journal["batches"] >= 3
        assert journal["bytes"] > 0
        (told,) = as_json(broker, "connections")
        assert (told["user"], told["vhost"], told["state"], told["channels"]) == ("guest", "/", "running", 1)
        assert told["local"] == f"127.0.0.1:{broker.port}"
        for table in ("status", "queues", "connections"):
            assert command(broker, table)
        connection.close()


def test_an_operator_closes_a_connection(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        connection = connect(broker)
        (told,) = as_json(broker, "connections")
        command(broker, "connections", "close", told["peer"], "--reason", "maintenance at noon")
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="maintenance at noon"):
            connection.sleep(30)
        assert command(broker, "connections", "close", told["peer"], code=1) == (
            f"escrowmq: no connection from {told['peer']}"
        )


def test_a_snapshot_is_taken_when_asked_for(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        connect(broker).channel().queue_declare("q", durable=True)
        assert "snapshot: in effect as of LSN 0x" in command(broker, "journal", "snapshot")
        (snapshot,) = broker.data_dir.glob("*.snapshot")
        assert "compacted: " in command(broker, "journal", "compact")
        broker.kill()
        broker.start()
        assert f"snapshot {snapshot.name}" in broker.log()
        assert [queue["name"] for queue in as_json(broker, "queues")] == ["q"]


NOTHING = ("--configure", "", "--write", "", "--read", "")


@pytest.mark.parametrize(
    ("args", "refusal"),
    [
        (("user", "delete", "bob"), "no such user 'bob'; `escrowmq user list` shows those that exist"),
        (("user", "delete", "bob", "--yes"), "no such user 'bob'; `escrowmq user list` shows those that exist"),
        (
            ("user", "delete", "guest"),
            "Delete user 'guest' with the user's permissions? [y/N]: \nescrowmq: nothing was deleted",
        ),
        (("user", "add", "guest", "--password", "x"), "user 'guest' already exists"),
        (("user", "password", "bob", "--password", "x"), "no such user 'bob'"),
        (("vhost", "add", "/"), "vhost '/' already exists"),
        (("vhost", "delete", "w", "--yes"), "no such vhost 'w'"),
        (("permission", "set", "guest", "w", *NOTHING), "no such vhost 'w'"),
        (
            ("permission", "set", "guest", "/", "--configure", "", "--write", "", "--read", "("),
            "invalid regular expression '('",
        ),
        (("vhost", "delete", "w"), "no such vhost 'w'; `escrowmq vhost list` shows those that exist"),
        (("vhost", "delete", "/"), "Delete vhost '/' with everything in it? [y/N]: \nescrowmq: nothing was deleted"),
        (("permission", "list", "--user", "nobody"), "no such user 'nobody'"),
        (("permission", "list", "--vhost", "w"), "no such vhost 'w'"),
        (("permission", "topic", "list", "--user", "nobody"), "no such user 'nobody'"),
        (("user", "delete", "\x1b]0;x\n"), "no such user '\\x1b]0;x\\n'"),
        (("queues", "--vhost", "w"), "no such vhost 'w'"),
        (("tx", "list", "--vhost", "w"), "no such vhost 'w'; `escrowmq vhost list` shows those that exist"),
        (("half", "list", "--vhost", "w"), "no virtual host 'w'"),
        (("topic", "list", "--vhost", "w"), "no such vhost 'w'"),
        (("definitions", "export", "--vhost", "w"), "no such vhost 'w'"),
    ],
)
def test_a_refusal_is_one_line(running: BrokerProcess, args: tuple[str, ...], refusal: str) -> None:
    said = command(running, *args, code=1)
    assert said.rpartition("\n")[2].startswith("escrowmq: ")
    assert said.removeprefix("escrowmq: ").startswith(refusal)
    assert said.count("\n") == refusal.count("\n")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with running_broker(tmp_path_factory.mktemp("admin")) as broker:
        yield broker


@pytest.mark.parametrize(
    ("args", "stdin", "complaint"),
    [
        (("user", "add", "bob"), "", "give --password-stdin"),
        (("half", "show", "t", "--json", "--body"), "", "--json and --body exclude each other"),
        (("tx", "list", "--older-than", "soon"), "", "'soon' is not"),
        (("user", "password", "guest"), "", "give --password-stdin"),
        (("user", "add", "bob", "--password", "x", "--no-password"), "", "exclude each other"),
        (("user", "add", "bob", "--password-stdin"), "one\ntwo\n", "more than one line"),
        (("permission", "set", "guest", "/"), "", "Missing option '--configure'"),
        (("permission", "set", "guest", "/", "--configure", "", "--write", ""), "", "Missing option '--read'"),
    ],
)
def test_wrong_use_changes_nothing(running: BrokerProcess, args: tuple[str, ...], stdin: str, complaint: str) -> None:
    said = command(running, *args, stdin=stdin, code=2)
    assert complaint in said
    assert "\n" not in said
    assert [user["name"] for user in as_json(running, "user", "list")] == ["guest"]
    assert as_json(running, "permission", "list", "--user", "guest")[0]["read"] == ".*"


def test_without_a_broker_no_password_is_asked_for(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "escrowmq", "user", "add", "bob", "--data-dir", str(tmp_path)],
            stdin=theirs,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("escrowmq: no broker runs on")


def test_without_a_broker_it_says_so(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    assert command(broker, "status", code=1).startswith(
        f"escrowmq: no broker runs on {broker.data_dir}; name the data directory of a running broker with --data-dir"
    )
    with broker:
        broker.kill()
        assert (broker.data_dir / "admin.sock").exists()
        assert "no broker runs on" in command(broker, "status", code=1)


def test_a_long_path_has_its_socket_all_the_same(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    with running_broker(folder) as broker:
        assert as_json(broker, "status")["pid"] == broker.pid
        broker.restart()
        assert as_json(broker, "status")["pid"] == broker.pid


def test_nothing_secret_is_logged(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        command(broker, "user", "add", "alice", "--password", "hunter2")
        assert "info admin: user.add name='alice' tags=[]" in broker.log(), "a change of users is logged"
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            connect(broker, "alice", "hunter3")
        wait_until(lambda: "login of user 'alice' from 127.0.0.1" in broker.log())
        assert "hunter" not in broker.log()


def test_policies_limit_the_queues_of_clients_also_after_a_restart(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        with connect(broker) as connection:
            channel = connection.channel()
            channel.queue_declare("events.a", durable=True)
            for body in (b"1", b"2", b"3"):
                channel.basic_publish("", "events.a", body, pika.BasicProperties(delivery_mode=2))
            command(broker, "policy", "set", "short", r"^events\.", '{"max-length": 2}', "--priority", "3")
            command(broker, "policy", "operator", "set", "most", "", '{"max-length": 1, "expires": 3600000}')
            assert channel.queue_declare("events.a", passive=True).method.message_count == 1
        (row,) = as_json(broker, "policy", "list", "--vhost", "/")
        assert (row["name"], row["apply_to"], row["priority"]) == ("short", "all", 3)
        broker.restart()
        assert r"^events\.  all              3  {" in command(broker, "policy", "list")
        (queue,) = as_json(broker, "queues")
        assert queue["effective_policy_definition"] == {"max-length": 1, "expires": 3_600_000}
        command(broker, "policy", "clear", "short")
        command(broker, "policy", "operator", "clear", "most")
        assert as_json(broker, "policy", "list") == as_json(broker, "policy", "operator", "list") == []
        for definition, reason in (
            ("max-length=1", "DEFINITION is no JSON"),
            ("[]", "must be a JSON object"),
        ):
            assert reason in command(broker, "policy", "set", "p", "", definition, code=2)
        assert "not recognised policy settings" in command(broker, "policy", "set", "p", "", '{"x": 1}', code=1)


def test_events_are_followed_over_a_restart_of_the_broker(tmp_path: Path) -> None:
    def told(name: str) -> dict[str, Any]:
        """Return the next event of that name."""
        assert following.stdout is not None
        while (event := json.loads(following.stdout.readline()))["event"] != name:
            pass
        return dict(event)

    with running_broker(tmp_path) as broker:
        connect(broker).close()
        command = [sys.executable, "-m", "escrowmq", "events", "--json", "--data-dir", str(broker.data_dir)]
        arguments = ["--kind", "connections,queue_declared", "--from", "0:00000000:0"]
        with subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as following:
            try:
                assert told("restarted")["fields"] == {}
                opened = told("CONNECTION_OPENED")["fields"]
                assert (opened["user"], opened["vhost"]) == ("guest", "/")
                assert told("CONNECTION_CLOSED")["fields"]["peer"] == opened["peer"]
                broker.terminate()
                assert following.stderr is not None
                assert b"the broker does not answer; waiting" in following.stderr.readline()
                broker.start()
                connect(broker).channel().queue_declare("after", durable=True)
                told("restarted")
                assert told("QUEUE_DECLARED")["fields"]["name"] == "after"
            finally:
                following.send_signal(signal.SIGINT)
            assert following.wait(30) == 130
