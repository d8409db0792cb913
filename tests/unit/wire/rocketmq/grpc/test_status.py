"""Statuses become trailers that any client reads."""

from __future__ import annotations

from urllib.parse import unquote

from hpack import Decoder
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.wire.rocketmq.grpc.status import HEAD, GrpcFault, GrpcStatus, escaped, failure, trailers


def test_the_head_and_the_trailers_of_a_success() -> None:
    decoder = Decoder()
    assert dict(decoder.decode(HEAD, raw=True)) == {b":status": b"200", b"content-type": b"application/grpc"}
    assert dict(decoder.decode(trailers(GrpcStatus.OK), raw=True)) == {b"grpc-status": b"0"}


def test_a_failure_has_its_text() -> None:
    found = dict(Decoder().decode(failure(GrpcFault(GrpcStatus.INTERNAL, "50 % größer")), raw=True))
    assert found[b"grpc-status"] == b"13"
    assert unquote(found[b"grpc-message"].decode()) == "50 % größer"


@given(st.text(max_size=200))
def test_any_text_is_escaped_to_printable_ascii(text: str) -> None:
    data = escaped(text)
    assert all(0x20 <= octet < 0x7F for octet in data)
    if text.isascii():
        assert unquote(data.decode()) == text
