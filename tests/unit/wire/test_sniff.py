"""The first eight bytes choose the protocol."""

from __future__ import annotations

import pytest

from escrowmq.wire.amqp091.connection import Connection
from escrowmq.wire.sniff import HEADER_SIZE, PROTOCOLS, REFUSAL, hopeless, sniff


def test_amqp_0_9_1_is_known() -> None:
    assert sniff(b"AMQP\x00\x00\x09\x01") is Connection


@pytest.mark.parametrize("header", [b"AMQP\x00\x01\x00\x00", b"AMQP\x01\x01\x00\x0a", b"GET / HT", b"", b"AMQP"])
def test_other_headers_are_not_known(header: bytes) -> None:
    assert sniff(header) is None


@pytest.mark.parametrize("header", PROTOCOLS)
def test_a_prefix_is_undecided_until_it_differs(header: bytes) -> None:
    assert len(header) == HEADER_SIZE
    for size in range(HEADER_SIZE + 1):
        assert not hopeless(header[:size])
        assert hopeless(header[:size] + b"\xff") or size == HEADER_SIZE
    assert not hopeless(header + b"more")


def test_the_refusal_is_a_supported_header() -> None:
    assert sniff(REFUSAL) is not None
