"""URLs are split, and no message contains a part of the password, for any malformed URL."""

from __future__ import annotations

import ssl

import pytest

from escrowmq.urls import flag, redacted, seconds, split, tls_context


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


@pytest.mark.parametrize(("text", "value"), [("true", True), ("1", True), ("", True), ("False", False), ("0", False)])
def test_a_flag(text: str, value: bool) -> None:
    assert flag(text) is value


def test_a_flag_is_nothing_else() -> None:
    with pytest.raises(ValueError, match="maybe"):
        flag("maybe")


@pytest.mark.parametrize(("text", "value"), [("2.5", 2.5), ("None", None)])
def test_seconds(text: str, value: float | None) -> None:
    assert seconds(text) == value


def test_a_tls_context_checks_the_peer_unless_told_otherwise() -> None:
    assert tls_context({}).verify_mode is ssl.CERT_REQUIRED
    assert tls_context({"verify": "verify_none"}).verify_mode is ssl.CERT_NONE


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"verify": "no"}, "verify must be"),
        ({"cacertfile": "/nowhere"}, r"certificates: .*No such file.* \(/nowhere\)"),
    ],
)
def test_a_tls_context_that_cannot_be_made(parameters: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tls_context(parameters)
