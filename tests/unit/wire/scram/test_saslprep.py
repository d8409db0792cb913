"""SASLprep."""

from __future__ import annotations

import pytest

from escrowmq.wire.scram.saslprep import password_bytes, saslprep


@pytest.mark.parametrize(
    ("text", "prepared"),
    [
        ("I\u00adX", "IX"),  # the examples of RFC 4013, section 3
        ("user", "user"),
        ("USER", "USER"),
        ("\u00aa", "a"),
        ("\u2168", "IX"),
        ("a\u00a0b", "a b"),
        ("u\u0308", "\u00fc"),
        ("\u0627\u0628", "\u0627\u0628"),
        ("", ""),
    ],
)
def test_texts_are_mapped_and_normalised(text: str, prepared: str) -> None:
    assert saslprep(text) == prepared


@pytest.mark.parametrize("text", ["\u0007", "\u06271", "a\u0627", "\u0627a\u0627", "\ufffd", "\U0001f511", "\ue000"])
def test_prohibited_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="SASLprep prohibits"):
        saslprep(text)


@pytest.mark.parametrize(
    ("password", "expected"), [("I\u00adX", b"IX"), ("a\u0007", b"a\x07"), ("\U0001f511", "\U0001f511".encode())]
)
def test_passwords_that_cannot_be_prepared_are_taken_as_they_are(password: str, expected: bytes) -> None:
    assert password_bytes(password) == expected


def test_no_password_becomes_empty() -> None:
    assert password_bytes("\u00ad") == "\u00ad".encode()


def test_lone_surrogates_are_an_error() -> None:
    with pytest.raises(UnicodeEncodeError):
        password_bytes("\udcff")
