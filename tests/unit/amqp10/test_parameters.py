"""URLs, their errors, and the back-off."""

from __future__ import annotations

import pytest

from escrowmq.amqp10.errors import UsageError
from escrowmq.amqp10.parameters import Backoff, parameters, parse_url


def test_a_url_may_be_complete() -> None:
    found = parse_url("amqp://us%40er:pa%2Fss@host:1234/v%2Fh?timeout=5&idle_timeout=7&auth_mechanism=plain")
    assert (found.host, found.port, found.user, found.password) == ("host", 1234, "us@er", "pa/ss")
    assert (found.virtual_host, found.hostname, found.logins) == ("v/h", "vhost:v/h", ("PLAIN",))
    assert (found.timeout, found.idle_timeout) == (5.0, 7.0)
    assert "pa/ss" not in repr(found)


def test_a_url_may_be_short() -> None:
    found = parse_url("amqp://[::1]")
    assert (found.address, found.hostname, found.logins) == ("[::1]:5672", "::1", ("ANONYMOUS",))
    assert parse_url("amqp://u:p@h").logins == ("SCRAM-SHA-256", "PLAIN")


def test_amqps_selects_tls() -> None:
    found = parse_url("amqps://host?server_name_indication=other&verify=verify_none")
    assert (found.port, found.hostname) == (5671, "other")
    assert found.ssl_context is not None


def test_keywords_override_every_url() -> None:
    first, second = parameters(["amqp://a:1", "amqp://b:2"], user="u", timeout=None)
    assert (first.host, second.host, first.user, second.timeout) == ("a", "b", "u", None)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("http://h", "amqp or amqps"),
        ("amqp://h/a/b", "%2F"),
        ("amqp://h?x=1", "unknown parameter 'x'"),
        ("amqp://h?timeout=soon", "not a valid value"),
        ("amqp://h?cacertfile=x", "requires amqps"),
        ("amqps://h?cacertfile=/nonexistent", "certificates"),
        ("amqp://u:secret@h?max_frame_size=1", "512 to"),
        ("amqp://h?auth_mechanism=kerberos", "supports PLAIN"),
        ("amqp://h?timeout=0", "greater than 0"),
        ("amqp://h?idle_timeout=-1", "0 \\(none\\) or more"),
    ],
)
def test_mistakes_are_explained_without_the_password(url: str, text: str) -> None:
    with pytest.raises(UsageError, match=text) as caught:
        parameters(url)
    assert "secret" not in str(caught.value)


def test_unknown_keywords_and_empty_lists_are_refused() -> None:
    with pytest.raises(UsageError, match="unknown connection parameter: colour"):
        parameters(colour="red")
    with pytest.raises(UsageError, match="empty"):
        parameters([])


def test_the_back_off_doubles_up_to_its_limit() -> None:
    delays = Backoff(1.0, 5.0, attempts=5).delays(lambda: 0.0)
    assert list(delays) == [1.0, 2.0, 4.0, 5.0]
    assert next(Backoff(1.0).delays(lambda: 1.0)) == 0.5


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("amqp://h", "h:5672"),
        ("amqp://h/shop", "h:5672/shop"),
        ("amqp://h/%2F", "h:5672/%2F"),
        ("amqp://[::1]/a%2Fb", "[::1]:5672/a%2Fb"),
    ],
)
def test_the_location_is_a_part_of_the_url(url: str, location: str) -> None:
    assert parse_url(url).location == location
