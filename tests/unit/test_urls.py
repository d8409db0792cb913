"""URLs are split, and no message contains a part of the password, for any malformed URL."""

from __future__ import annotations

import pytest

from escrowmq.urls import redacted, split


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("amqp://u:secret@host/v?name=x", "amqp://…@host/v"),
        ("amqp://host:5/v", "amqp://host:5/v"),
        ("amqp://u:se/cr#e?t@host:5/", "amqp://…@host:5/"),
        ("amqp://u:p@host?name=me@home", "amqp://…@home"),
        ("u:secret@host", "…@host"),
        ("host?x=1", "host"),
    ],
)
def test_redacted(url: str, shown: str) -> None:
    assert redacted(url) == shown


def test_the_parts_of_a_good_one() -> None:
    parts = split("amqp://u:p%2Fw@host:7/v")
    assert (parts.username, parts.password, parts.hostname, parts.port, parts.path) == ("u", "p%2Fw", "host", 7, "/v")


@pytest.mark.parametrize("character", "/?#")
@pytest.mark.parametrize("host", ["@127.0.0.1:5672/", ""])
def test_a_password_that_is_not_escaped_is_not_repeated(character: str, host: str) -> None:
    with pytest.raises(ValueError, match=r"written %2F %3F %23 %40 %3A") as caught:
        split(f"amqp://guest:sEcret77{character}xYz88{host}")
    said = str(caught.value)
    assert "sEcret" not in said
    assert "xYz" not in said
