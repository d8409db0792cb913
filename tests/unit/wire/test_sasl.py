"""SASL responses of clients, and malformed ones."""

from __future__ import annotations

import pytest

from escrowmq.wire import sasl
from escrowmq.wire.amqp091.errors import SyntaxFault
from escrowmq.wire.amqp091.table import decode_fields, encode_table
from escrowmq.wire.sasl import Credentials, SaslError


def amqplain(**fields: str | int) -> bytes:
    return encode_table(dict(fields))[4:]


@pytest.mark.parametrize(
    ("mechanism", "response", "expected"),
    [
        ("PLAIN", b"\0guest\0secret", Credentials("PLAIN", "guest", "secret")),
        ("PLAIN", b"guest\0guest\0secret", Credentials("PLAIN", "guest", "secret")),
        ("PLAIN", "\0jürgen\0pässword".encode(), Credentials("PLAIN", "jürgen", "pässword")),
        ("AMQPLAIN", amqplain(LOGIN="guest", PASSWORD="secret"), Credentials("AMQPLAIN", "guest", "secret")),
        ("PLAIN", b"\0\0a token", Credentials("PLAIN", "", "a token")),
        ("AMQPLAIN", amqplain(LOGIN="", PASSWORD="a token"), Credentials("AMQPLAIN", "", "a token")),
        ("EXTERNAL", b"", Credentials("EXTERNAL", "")),
        ("EXTERNAL", b"cn=app", Credentials("EXTERNAL", "cn=app")),
        ("ANONYMOUS", b"", Credentials("ANONYMOUS", "anonymous")),
        ("ANONYMOUS", b"somebody@example.com", Credentials("ANONYMOUS", "anonymous")),
    ],
)
def test_responses_of_clients_are_decoded(mechanism: str, response: bytes, expected: Credentials) -> None:
    assert sasl.parse(mechanism, response, decode_fields) == expected
    assert mechanism in sasl.MECHANISMS


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [
        ("PLAIN", b""),
        ("PLAIN", b"guest\0secret"),
        ("PLAIN", b"\0guest\0secret\0"),
        ("PLAIN", b"\0guest\0"),
        ("PLAIN", b"admin\0guest\0secret"),
        ("PLAIN", b"\0guest\0\xff"),
        ("AMQPLAIN", b""),
        ("AMQPLAIN", amqplain(LOGIN="guest")),
        ("AMQPLAIN", amqplain(LOGIN="guest", PASSWORD=7)),
        ("AMQPLAIN", amqplain(LOGIN="guest", PASSWORD="")),
        ("EXTERNAL", b"\xff"),
        ("EXTERNAL", b"a\0b"),
        ("ANONYMOUS", b"x" * 256),
        ("ANONYMOUS", b"\0"),
        ("ANONYMOUS", b"\xff"),
        ("CRAM-MD5", b""),
        ("plain", b"\0guest\0secret"),
        ("", b""),
    ],
)
def test_malformed_responses_are_refused_and_not_repeated(mechanism: str, response: bytes) -> None:
    with pytest.raises(SaslError) as raised:
        sasl.parse(mechanism, response, decode_fields)
    assert "secret" not in str(raised.value)
    assert "guest" not in str(raised.value)


def test_a_malformed_table_raises_the_protocols_error() -> None:
    with pytest.raises(SyntaxFault):
        sasl.parse("AMQPLAIN", b"\5LOGINS\0\0\0\xff", decode_fields)


def test_amqplain_needs_a_protocol_with_tables() -> None:
    with pytest.raises(SaslError, match="unknown SASL mechanism"):
        sasl.parse("AMQPLAIN", amqplain(LOGIN="guest", PASSWORD="secret"))


def test_passwords_are_not_shown() -> None:
    assert repr(Credentials("PLAIN", "guest", "secret")) == "Credentials(mechanism='PLAIN', authcid='guest')"
