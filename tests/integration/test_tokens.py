"""Logins by tokens of a real authorization server, over AMQP 0-9-1, AMQP 1.0 and HTTP."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pika
import pytest
from pika.exceptions import (
    AMQPConnectionError,
    ChannelClosedByBroker,
    ConnectionClosedByBroker,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
)

from escrowmq import amqp10
from escrowmq.wire.amqp010.codec.spec import ConnectionClose
from tests.broker import BrokerProcess, running_broker, wait_until
from tests.harness.amqp010_client import SocketLink
from tests.ports import reserve_port
from tests.tokens import AUDIENCE, ISSUER, KeyServer, claims, jwk, key_server, key_set, part, token

REFUSED = (ProbableAuthenticationError, AMQPConnectionError)


class Owner:
    """Holds a reserved port for as long as it lives."""


class TokenSite(NamedTuple):
    """A broker that accepts tokens, its HTTP port, and the server of the keys."""

    broker: BrokerProcess
    port: int
    server: KeyServer

    def connect(self, given: str, user: str = "", vhost: str = "/") -> Any:
        return pika.BlockingConnection(
            pika.ConnectionParameters(
                "127.0.0.1", self.broker.port, vhost, pika.PlainCredentials(user, given), socket_timeout=60
            )
        )

    def request(
        self, path: str, given: str, method: str = "GET", body: Any = None, scheme: str = "Bearer"
    ) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {"Authorization": f"{scheme} {given}", "Content-Type": "application/json"}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            data = answer.read()
            return answer.status, json.loads(data) if data else None
        finally:
            connection.close()

    def answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()


def wait_for_end(connection: Any) -> None:
    """Raise what ends the connection."""
    while True:
        connection.process_data_events(time_limit=60)


def configuration(folder: Path, **keys: Any) -> Path:
    """Write a configuration that accepts tokens."""
    given = {"issuer": ISSUER, "audience": AUDIENCE, "leeway_seconds": 0, **keys}
    path = folder / "broker.toml"
    lines = [f"{name} = {json.dumps(value)}" for name, value in given.items()]
    path.write_text("\n".join(["[tokens]", *lines]))
    return path


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenSite]:
    folder, owner = tmp_path_factory.mktemp("tokens"), Owner()
    port = reserve_port(owner)
    with key_server() as server:
        path = configuration(folder, keys_url=server.url)
        with running_broker(folder, "--config", str(path), "--http", f"127.0.0.1:{port}") as broker:
            found = TokenSite(broker, port, server)
            wait_until(found.answers)
            yield found


def test_a_token_is_the_password_whatever_the_user_name(site: TokenSite) -> None:
    for user in ("", "ignored", "guest"):
        with site.connect(token(sub="service-7"), user) as connection:
            channel = connection.channel()
            channel.queue_declare("mine")
            channel.basic_publish("", "mine", b"x", pika.BasicProperties(user_id="service-7"))
            assert channel.basic_get("mine", auto_ack=True)[2] == b"x"
    assert "user 'service-7' logged in from" in site.broker.log()


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (token(aud="other"), "for another audience"),
        (token(iss="https://other.example.com"), "of another issuer"),
        (token(exp=int(time.time()) - 1), "has expired"),
        (token(nbf=int(time.time()) + 3600), "is not valid yet"),
        (token("two", header={"kid": "one"}), "signature is wrong"),
        (f"{part({'alg': 'none'})}.{part(claims())}.", "algorithm is not one of"),
        (token("unknown"), "key is not one of the issuer's"),
    ],
)
def test_a_token_that_is_wrong_is_refused_and_the_log_says_why(site: TokenSite, given: str, why: str) -> None:
    with pytest.raises(REFUSED):
        site.connect(given)
    wait_until(lambda: "login of a token from 127.0.0.1" in site.broker.log() and why in site.broker.log())
    status, answer = site.request("/api/whoami", given)
    assert (status, answer) == (401, {"error": "not_authorized", "reason": "Login failed"})
    assert given.split(".")[1] not in site.broker.log()


def test_scopes_are_permissions(site: TokenSite) -> None:
    scope = "broker.read:%2F/orders-* broker.write:%2F/amq.default broker.configure:%2F/orders-*"
    with site.connect(token(scope=scope)) as connection:
        channel = connection.channel()
        channel.queue_declare("orders-1")
        channel.basic_publish("", "orders-1", b"x")
        with pytest.raises(ChannelClosedByBroker, match="access to queue 'other' in vhost '/' refused"):
            channel.queue_declare("other")
    with pytest.raises(ProbableAccessDeniedError, match="access to vhost '/' refused for user 'alice'"):
        site.connect(token(scope="broker.read:other/* read:*/*"))


def test_tokens_over_amqp_1_0(site: TokenSite) -> None:
    url = f"amqp://127.0.0.1:{site.broker.port}"
    with amqp10.connect(url, user="any", password=token(), mechanism="PLAIN") as connection:
        assert connection is not None
    with pytest.raises(amqp10.AmqpError):
        amqp10.connect(url, user="any", password=token(aud="other"), mechanism="PLAIN")


def test_tokens_over_amqp_0_10(site: TokenSite) -> None:
    long = token(note="x" * 8_000)
    assert len(long) > 10_000
    for given in (token(), long):
        SocketLink(site.broker.port, "any", given).close()
    with pytest.raises(AssertionError):
        SocketLink(site.broker.port, "any", token(aud="other"))
    link = SocketLink(site.broker.port, "any", token(exp=int(time.time()) + 3))
    closed = link.expect(ConnectionClose)
    assert (closed.reply_code, closed.reply_text) == (320, "the token has expired")
    link.close()


def test_whoami_shows_the_user_and_the_tags_of_a_token(site: TokenSite) -> None:
    given = token(sub="operator", scope="broker.tag:monitoring")
    assert site.request("/api/whoami", given) == (200, {"name": "operator", "tags": ["monitoring"]})
    assert site.request("/api/whoami", token())[0] == 401, "without a tag"
    assert site.request("/api/whoami", given, scheme="bearer")[0] == 200
    assert site.request("/api/users", given)[0] == 401, "not an administrator"


def test_over_http_rights_come_from_the_token_and_not_from_a_user_of_the_same_name(site: TokenSite) -> None:
    given = token(sub="guest", scope="broker.tag:management broker.configure:%2F/http-* broker.read:%2F/http-*")
    assert site.request("/api/queues/%2F/http-1", given, "PUT", {})[0] == 201
    status, answer = site.request("/api/queues/%2F/other", given, "PUT", {})
    assert status in {400, 401, 403}
    assert "refused for user 'guest'" in answer["reason"]
    elsewhere = token(sub="guest", scope="broker.tag:management broker.read:elsewhere/*")
    assert site.request("/api/queues/%2F/http-2", elsewhere, "PUT", {})[0] in {400, 401, 403}
    assert site.request("/api/vhosts", elsewhere) == (200, [])
    assert [row["name"] for row in site.request("/api/vhosts", given)[1]] == ["/"]
    assert "by='guest'" in site.broker.log()


def test_status_shows_the_issuer_and_the_state_of_the_keys(site: TokenSite) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "escrowmq", "status", "--data-dir", str(site.broker.data_dir)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert f"of {ISSUER} for {AUDIENCE}, " in done.stdout


def test_an_expired_token_closes_the_connection(site: TokenSite) -> None:
    connection = site.connect(token(exp=int(time.time()) + 3))
    with pytest.raises(ConnectionClosedByBroker, match="the token has expired"):
        wait_for_end(connection)


def test_update_secret_keeps_the_connection_beyond_the_first_token(site: TokenSite) -> None:
    soon = int(time.time()) + 4
    connection = site.connect(token(exp=soon))
    channel = connection.channel()
    channel.queue_declare("renewed")
    connection.update_secret(token(), "renewed")
    other = site.connect(token(exp=soon))  # its end tells that the time of the first token has passed
    with pytest.raises(ConnectionClosedByBroker):
        wait_for_end(other)
    channel.basic_publish("", "renewed", b"x")
    connection.close()


@pytest.mark.parametrize(
    ("given", "why"), [(token(sub="eve"), "another user's"), (token(aud="other"), "refused"), ("secret", "refused")]
)
def test_a_new_token_that_is_refused_closes_the_connection(site: TokenSite, given: str, why: str) -> None:
    connection = site.connect(token())
    with pytest.raises(ConnectionClosedByBroker, match=why):
        connection.update_secret(given, "renewed")


def test_a_new_token_with_fewer_scopes_ends_consumers(site: TokenSite) -> None:
    connection = site.connect(token())
    channel = connection.channel()
    channel.queue_declare("narrowed")
    tag = channel.basic_consume("narrowed", lambda *_: None)
    cancelled: list[str] = []
    channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    connection.update_secret(token(scope="broker.write:*/*"), "narrowed")
    wait_until(lambda: bool(connection.process_data_events(time_limit=0.05) or cancelled))
    assert cancelled == [tag]
    connection.close()


def test_wrong_tokens_over_http_are_slowed(site: TokenSite) -> None:
    started = time.monotonic()
    for number in range(8):
        assert site.request("/api/whoami", token(sub=str(number), aud="other"))[0] == 401
    assert time.monotonic() - started > 2
    assert site.request("/api/whoami", token(scope="broker.tag:management"))[0] == 200


def test_a_key_that_is_new_is_fetched_when_a_token_names_it(tmp_path: Path) -> None:
    with key_server() as server:
        path = configuration(tmp_path, keys_url=server.url, refresh_seconds=3600)
        with running_broker(tmp_path, "--config", str(path)) as broker:
            site = TokenSite(broker, 0, server)
            site.connect(token("one")).close()
            asked = server.asked
            server.body = key_set("new")
            site.connect(token("new")).close()
            with pytest.raises(REFUSED):
                site.connect(token("one"))
            assert server.asked == asked + 1, "unknown keys are asked for again after some seconds only"


def test_a_file_of_keys_is_read_again_on_sighup(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    keys.write_bytes(key_set("one"))
    path = configuration(tmp_path, keys_file="keys.json", refresh_seconds=3600)
    with running_broker(tmp_path, "--config", str(path)) as broker, key_server() as server:
        site = TokenSite(broker, 0, server)
        site.connect(token("one")).close()
        keys.write_bytes(b"{}")
        broker.signal(signal.SIGHUP)
        wait_until(lambda: "the 1 former ones stay in use" in broker.log())
        site.connect(token("one")).close()
        keys.write_bytes(json.dumps({"keys": [jwk("curve", "ES256")]}).encode())
        broker.signal(signal.SIGHUP)
        wait_until(lambda: broker.log().count("read 1 keys for tokens") == 2)
        site.connect(token("curve", "ES256")).close()
        with pytest.raises(REFUSED):
            site.connect(token("one"))


def test_keys_that_cannot_be_fetched_at_the_start_are_fetched_later(tmp_path: Path) -> None:
    with key_server() as server:
        server.status = 503
        path = configuration(tmp_path, keys_url=server.url)
        with running_broker(tmp_path, "--config", str(path)) as broker:
            site = TokenSite(broker, 0, server)
            with pytest.raises(REFUSED):
                site.connect(token())
            assert "the server answered with status 503" in broker.log()
            with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
                connection.channel()
            server.status = 200
            wait_until(lambda: "read 1 keys for tokens" in broker.log())
            site.connect(token()).close()


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({}, "tokens.issuer: requires either tokens.keys_file or tokens.keys_url"),
        ({"keys_url": "http://idp.example.com/"}, "tokens.keys_url: https is needed"),
        ({"keys_file": "missing.json"}, "No such file"),
        ({"keys_url": "https://x/", "audience": ""}, "tokens.issuer: requires tokens.audience"),
        ({"keys_url": "https://x/", "algorithms": ["HS256"]}, "tokens.algorithms"),
        ({"keys_url": "https://x/", "algorithms": ["none"]}, "tokens.algorithms"),
    ],
)
def test_a_broker_with_incomplete_settings_does_not_start(tmp_path: Path, keys: dict[str, Any], told: str) -> None:
    path = configuration(tmp_path, **keys)
    done = subprocess.run(
        [sys.executable, "-m", "escrowmq", "serve", "--config", str(path), "--data-dir", str(tmp_path / "data")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert told in done.stderr
    assert not (tmp_path / "data").exists()
