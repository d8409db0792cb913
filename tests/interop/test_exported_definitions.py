"""Definitions that a real RabbitMQ has exported are imported over HTTP and at the start; users keep their passwords."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pika
import pytest

from bench.brokers import RabbitMQ
from tests.broker import BrokerProcess, running_broker, wait_until
from tests.interop.differential import definitions
from tests.interop.differential.definitions import FILE, PASSWORD, USER, VHOST
from tests.ports import reserve_port

pytestmark = pytest.mark.interop

LISTED = ("exchanges", "queues", "bindings", "permissions", "topic_permissions")


class Site:
    """A broker with an HTTP process, asked by `guest`."""

    def __init__(self, folder: Path, *args: str) -> None:
        self.port = reserve_port(self)
        self.broker: BrokerProcess = running_broker(folder, "--http", f"127.0.0.1:{self.port}", *args)

    def ask(self, path: str, body: bytes | None = None, user: str = "guest:guest") -> tuple[int, Any]:
        """Get a path, or post a body to it. The status is 0 if the HTTP process does not run yet."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        login = base64.b64encode(user.encode()).decode()
        headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
        try:
            connection.request("GET" if body is None else "POST", f"/api/{path}", body, headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"null")
        except ConnectionError:
            return 0, None
        finally:
            connection.close()

    def listed(self, what: str) -> list[dict[str, Any]]:
        status, rows = self.ask(what.replace("_", "-"))
        assert status == 200
        return list(rows)


@pytest.fixture(params=["over HTTP", "at the start"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    config = tmp_path / "escrowmq.toml"
    config.write_text(f"load_definitions = {json.dumps(str(FILE))}\n" if request.param == "at the start" else "")
    found = Site(tmp_path, "--config", str(config))
    with found.broker:
        wait_until(lambda: found.ask("whoami")[0] == 200)
        if request.param == "over HTTP":
            assert found.ask("definitions", FILE.read_bytes()) == (204, None)
        yield found


def exported() -> dict[str, list[dict[str, Any]]]:
    return dict(json.loads(FILE.read_text(encoding="utf-8")))


def missing(site: Site, what: str) -> list[dict[str, Any]]:
    """Return the objects of the file that no row of a list has with all their values."""
    rows = site.listed(what)
    return [each for each in exported()[what] if not any(each.items() <= row.items() for row in rows)]


@pytest.mark.parametrize("what", LISTED)
def test_the_lists_have_what_was_exported(site: Site, what: str) -> None:
    # RabbitMQ exports the bindings of internal exchanges and exclusive queues, but not these themselves.
    found = missing(site, what)
    assert [each for each in found if not {"hidden", "reply"} & {each.get("source"), each.get("destination")}] == []


def test_users_keep_passwords_tags_permissions_and_limits(site: Site) -> None:
    for _ in range(2):  # the first login replaces the hash
        login = pika.PlainCredentials(USER, PASSWORD)
        with pika.BlockingConnection(
            pika.ConnectionParameters("127.0.0.1", site.broker.port, VHOST, login)
        ) as connection:
            channel = connection.channel()
            channel.basic_publish("", "orders", b"m")
            with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="ACCESS_REFUSED"):
                channel.queue_declare("other")
    assert site.ask("whoami", user=f"{USER}:{PASSWORD}") == (
        200,
        {"name": USER, "tags": ["management", "policymaker"]},
    )
    assert site.ask("whoami", user=f"{USER}:wrong")[0] == 401
    assert site.ask(f"user-limits/{USER}")[1] == [{"user": USER, "value": {"max-channels": 40}}]
    limits = {"max-connections": 30, "max-queues": 20}
    assert site.ask(f"vhost-limits/{quote(VHOST, safe='')}")[1] == [{"vhost": VHOST, "value": limits}]


@pytest.mark.slow
@pytest.mark.skipif(not RabbitMQ.installed(), reason="rabbitmq-server is not installed")
def test_the_installed_rabbitmq_exports_the_same(tmp_path: Path) -> None:
    def comparable(document: dict[str, Any]) -> dict[str, Any]:
        document = dict(document) | {"users": [{**user, "password_hash": ""} for user in document["users"]]}
        return {
            name: sorted(value, key=json.dumps) if isinstance(value, list) else value
            for name, value in document.items()
            if not name.startswith("rabbit")
        }

    assert comparable(json.loads(definitions.exported(tmp_path))) == comparable(exported())
