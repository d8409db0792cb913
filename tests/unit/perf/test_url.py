"""AMQP URLs: defaults, escapes and errors."""

from __future__ import annotations

import pytest

from escrowmq.perf.errors import PerfError
from escrowmq.perf.url import Target, parse_url


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("amqp://localhost", Target("localhost", 5672, "guest", "guest", "/")),
        ("amqp://localhost/", Target("localhost", 5672, "guest", "guest", "/")),
        ("amqp://localhost/%2F", Target("localhost", 5672, "guest", "guest", "/")),
        ("amqp://u:p@h:1/v", Target("h", 1, "u", "p", "v")),
        ("amqp://u%40x:p%2F%3A@h/a%2Fb", Target("h", 5672, "u@x", "p/:", "a/b")),
        ("amqp://u:@h", Target("h", 5672, "u", "", "/")),
        ("amqp://[::1]:7/v", Target("::1", 7, "guest", "guest", "v")),
    ],
)
def test_a_valid_url_is_parsed(url: str, expected: Target) -> None:
    assert parse_url(url) == expected


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("localhost:5672", "scheme"),
        ("http://localhost", "scheme must be one of amqp, rocketmq, rocketmq.grpc, not 'http'"),
        ("amqps://localhost", "scheme"),
        ("amqp://", "no host"),
        ("amqp://h:port/", "a port is a number"),
        ("amqp://h:70000/", "up to 65535"),
        ("amqp://h/a/b", "%2F"),
        ("amqp://h/?heartbeat=1", "query"),
        ("amqp://[::1/", "IPv6"),
    ],
)
def test_an_invalid_url_gives_one_line_with_the_reason(url: str, complaint: str) -> None:
    with pytest.raises(PerfError, match=complaint) as caught:
        parse_url(url)
    assert "\n" not in str(caught.value)


def test_no_message_shows_the_password() -> None:
    with pytest.raises(PerfError) as caught:
        parse_url("amqp://user:secret@h/a/b")
    assert "secret" not in str(caught.value)


def test_an_ipv6_address_is_in_brackets() -> None:
    assert parse_url("amqp://[::1]:7/").address == "[::1]:7"
