"""The messages of SCRAM, and malformed ones."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.wire.scram.messages import (
    ClientFinal,
    ClientFirst,
    ScramError,
    ServerFirst,
    escape,
    read_client_final,
    read_client_first,
    read_server_final,
    read_server_first,
    unescape,
)

NONCE = "fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        # RFC 5802, section 5
        (b"n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL", ClientFirst("n,,", "user", NONCE[:24], f"n=user,r={NONCE[:24]}")),
        (b"y,,n=user,r=x", ClientFirst("y,,", "user", "x", "n=user,r=x")),
        (b"n,a=user,n=user,r=x", ClientFirst("n,a=user,", "user", "x", "n=user,r=x")),
        (b"n,,n=a=3Db=2Cc,r=x,e=f", ClientFirst("n,,", "a=b,c", "x", "n=a=3Db=2Cc,r=x,e=f")),
        ("n,,n=jürgen,r=x".encode(), ClientFirst("n,,", "jürgen", "x", "n=jürgen,r=x")),
    ],
)
def test_the_first_message_of_a_client(message: bytes, expected: ClientFirst) -> None:
    assert read_client_first(message) == expected


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n",
        b"n,",
        b"n,,",
        b"n,,n=user",
        b"n,,n=user,",
        b"n,,r=x,n=user",
        b"n,,n=,r=x",
        b"n,,n=user,r=",
        b"p=tls-unique,,n=user,r=x",
        b"x,,n=user,r=x",
        b"n,b=user,n=user,r=x",
        b"n,a=other,n=user,r=x",
        b"n,,m=ext,n=user,r=x",
        b"n,,n=us=er,r=x",
        b"n,,n=user,r=\x7f",
        b"n,,n=user,r=\xc3\xa9",
        b"n,,n=\xff,r=x",
        b"n,,n=us\0er,r=x",
        b"N,,n=user,r=x",
    ],
)
def test_malformed_first_messages_are_refused_and_not_repeated(message: bytes) -> None:
    with pytest.raises(ScramError) as caught:
        read_client_first(message)
    assert "user=" not in str(caught.value)


def test_the_second_message_of_a_client() -> None:
    message = f"c=biws,r={NONCE},p=dGVzdA==".encode()
    assert read_client_final(message, "n,,", NONCE) == ClientFinal(b"test", f"c=biws,r={NONCE}")
    extended = f"c=biws,r={NONCE},x=y,p=dGVzdA==".encode()
    assert read_client_final(extended, "n,,", NONCE).without_proof == f"c=biws,r={NONCE},x=y"


@pytest.mark.parametrize(
    "message",
    [
        "",
        "c=biws",
        "c=biws,r={}",
        "c=biws,r={},p=?",
        "c=biws,r={},p=dGVzdA",
        "c=biws,r={}x,p=dGVzdA==",
        "c=biws,r=,p=dGVzdA==",
        "c=eSws,r={},p=dGVzdA==",
        "c=,r={},p=dGVzdA==",
        "r={},c=biws,p=dGVzdA==",
        "c=biws,x=y,r={},p=dGVzdA==",
        "c=biws,r={},p=é",
        "p=dGVzdA==",
        "c=b,r={},p=dGVzdA==",
    ],
)
def test_malformed_second_messages_are_refused(message: str) -> None:
    with pytest.raises(ScramError):
        read_client_final(message.format(NONCE).encode(), "n,,", NONCE)


def test_the_first_message_of_a_server() -> None:
    message = f"r={NONCE},s=QSXCR+Q6sek8bf92,i=4096".encode()
    assert read_server_first(message, NONCE[:24]) == ServerFirst(NONCE, bytes.fromhex("4125c247e43ab1e93c6dff76"), 4096)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"r=abc",
        b"r=abc,s=QQ==",
        b"r=xbc,s=QQ==,i=4096",
        b"r=a,s=QQ==,i=4096",
        b"r=abc,s=,i=4096",
        b"r=abc,s=?,i=4096",
        b"r=abc,s=QQ==,i=",
        b"r=abc,s=QQ==,i=0",
        b"r=abc,s=QQ==,i=-1",
        b"r=abc,s=QQ==,i=1e9",
        b"r=abc,s=QQ==,i=99999999999",
        b"m=x,r=abc,s=QQ==,i=4096",
        b"\xff",
        b"e=other-error",
    ],
)
def test_malformed_challenges_are_refused(message: bytes) -> None:
    with pytest.raises(ScramError):
        read_server_first(message, "a")


@pytest.mark.parametrize("message", [b"", b"e=invalid-proof", b"v=?", b"x=y"])
def test_malformed_signatures_are_refused(message: bytes) -> None:
    with pytest.raises(ScramError):
        read_server_final(message)


@given(st.text())
def test_names_are_escaped_and_back(name: str) -> None:
    assert unescape(escape(name)) == name
    assert "," not in escape(name)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for prefix in (b"", b"n,,n=user,", b"c=biws,r=abc,"):
        with contextlib.suppress(ScramError):
            read_client_first(prefix + data)
        with contextlib.suppress(ScramError):
            read_client_final(prefix + data, "n,,", "abc")
        with contextlib.suppress(ScramError):
            read_server_first(prefix + data, "a")
