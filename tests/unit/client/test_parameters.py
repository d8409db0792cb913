"""Connection parameters come from URLs and keyword arguments."""

from __future__ import annotations

import ssl
from typing import Any

import pytest

from escrowmq.client.errors import ProgrammingError
from escrowmq.client.parameters import Parameters, parameters, parse_url


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("amqp://", {}),
        ("amqp://host", {"host": "host"}),
        ("amqp://host/", {"host": "host"}),
        ("amqp://[::1]:5673", {"host": "::1", "port": 5673}),
        ("amqp://u:p@host:1/v", {"host": "host", "port": 1, "user": "u", "password": "p", "virtual_host": "v"}),
        ("amqp://u%40x:p%2Fx@/%2Fv%20w", {"user": "u@x", "password": "p/x", "virtual_host": "/v w"}),
        ("amqp://u:@", {"user": "u", "password": ""}),
        (
            "amqp://h?heartbeat=0&timeout=none&connection_timeout=1.5",
            {"host": "h", "heartbeat": 0, "timeout": None, "connection_timeout": 1.5},
        ),
        ("amqp://?name=a+b&frame_max=4096&channel_max=7", {"name": "a b", "frame_max": 4096, "channel_max": 7}),
        (
            "amqp://?heartbeat_thread=true&auth_mechanism=anonymous",
            {"heartbeat_thread": True, "mechanism": "ANONYMOUS"},
        ),
        ("amqp://?heartbeat_thread", {"heartbeat_thread": True}),
    ],
)
def test_urls_are_parsed(url: str, expected: dict[str, Any]) -> None:
    assert parse_url(url) == Parameters(**expected)


def test_tls_urls_are_parsed() -> None:
    found = parse_url("amqps://host/v?verify=verify_none&server_name_indication=other")
    assert (found.port, found.server_name) == (5671, "other")
    assert found.ssl_context is not None
    assert found.ssl_context.verify_mode is ssl.CERT_NONE
    strict = parse_url("amqps://host").ssl_context
    assert strict is not None
    assert strict.verify_mode is ssl.CERT_REQUIRED
    assert strict.check_hostname


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://host", "the scheme must be amqp or amqps"),
        ("host:5672", "the scheme must be amqp or amqps"),
        ("amqp://host:x", "a port is a number"),
        ("amqp://host:70000", "ort"),
        ("amqp://host/a/b", "%2F"),
        ("amqp://host?heartbeats=1", "unknown parameter 'heartbeats'"),
        ("amqp://host?heartbeat=often", "is not a valid value"),
        ("amqp://host?heartbeat=-1", "heartbeat must be 0 to 65535"),
        ("amqp://host?heartbeat_thread=perhaps", "is not a valid value"),
        ("amqp://host?timeout=0", "must be greater than 0 s"),
        ("amqp://host?connection_timeout=0", "must be greater than 0 s"),
        ("amqp://host?frame_max=100", "at least 4096"),
        ("amqp://host?channel_max=70000", "to 65535"),
        ("amqp://host?auth_mechanism=gssapi", "unknown mechanism"),
        ("amqp://host?cacertfile=x", "requires amqps"),
        ("amqps://host?verify=maybe", "verify_peer or verify_none"),
        ("amqps://host?cacertfile=/nonexistent", "certificates"),
    ],
)
def test_errors_name_the_cause_and_never_the_password(url: str, message: str) -> None:
    with_password = url.replace("host", "user:secret@host")
    with pytest.raises(ProgrammingError, match=message) as caught:
        parse_url(with_password)
    assert "secret" not in str(caught.value)


def test_keywords_override_the_url() -> None:
    assert parameters("amqp://a:b@host/v", user="c", timeout=3) == Parameters(
        host="host", user="c", password="b", virtual_host="v", timeout=3
    )
    assert parameters(host="x") == Parameters(host="x")
    assert parameters(ssl_context=ssl.create_default_context()).port == 5671
    with pytest.raises(ProgrammingError, match="unknown connection parameter: hots, prot"):
        parameters(hots="x", prot=1)
    with pytest.raises(ProgrammingError, match="port must be 1 to 65535"):
        parameters(port=0)


def test_passwords_are_not_shown() -> None:
    assert "secret" not in repr(Parameters(password="secret"))
    assert Parameters(host="::1", port=1).address == "[::1]:1"


@pytest.mark.parametrize(
    ("virtual_host", "location"), [("/", "h:5672/"), ("shop", "h:5672/shop"), ("/a", "h:5672/%2Fa")]
)
def test_the_location_is_a_part_of_the_url(virtual_host: str, location: str) -> None:
    assert Parameters(host="h", virtual_host=virtual_host).location == location
