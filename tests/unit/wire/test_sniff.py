"""The first eight bytes choose the protocol."""

from __future__ import annotations

import pytest

from escrowmq.wire.amqp010.connection import Connection as Amqp010
from escrowmq.wire.amqp091.connection import Connection
from escrowmq.wire.amqp10.connection import Connection as Amqp10
from escrowmq.wire.sniff import (
    AMQP_FAMILY,
    HEADER_SIZE,
    PROTOCOLS,
    REFUSAL,
    REFUSALS,
    amqp_family,
    hopeless,
    refusal,
    sniff,
)


@pytest.mark.parametrize("version", [b"\0\0\x09\x01", b"\x01\x01\0\x09", b"\x01\x01\x08\0", b"\x01\x01\x09\x01"])
def test_amqp_0_9_1_and_the_versions_before_it_are_known(version: bytes) -> None:
    assert sniff(b"AMQP" + version) is Connection


def test_amqp_0_10_is_known() -> None:
    assert sniff(b"AMQP\x01\x01\x00\x0a") is Amqp010


@pytest.mark.parametrize("layer", [b"\x00", b"\x02", b"\x03"])
def test_all_layers_of_amqp_1_0_are_known(layer: bytes) -> None:
    assert sniff(b"AMQP" + layer + b"\x01\x00\x00") is Amqp10


@pytest.mark.parametrize("header", [b"AMQP\x00\x01\x01\x00", b"AMQP\x01\x01\x00\x0b", b"GET / HT", b"", b"AMQP"])
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


@pytest.mark.parametrize(
    ("start", "answer"),
    [
        (b"AMQP\x00\x01\x01\x00", b"AMQP\x03\x01\x00\x00"),
        (b"AMQP\x03\x01\x00\x01", b"AMQP\x03\x01\x00\x00"),
        (b"AMQP\x00\x00\x08\x02", REFUSAL),
        (b"AMQP\x01\x01\x00\x0b", b"AMQP\x01\x01\x00\x0a"),
        (b"AMQP\x01\x01\x08\x01", REFUSAL),
        (b"NOTANAMQPHEADER", REFUSAL),
        (b"", REFUSAL),
    ],
)
def test_an_unknown_header_is_answered_by_its_family(start: bytes, answer: bytes) -> None:
    assert refusal(start) == answer


@pytest.mark.parametrize("version", REFUSALS)
def test_what_is_not_amqp_is_answered_as_configured(version: str) -> None:
    family = amqp_family(REFUSALS[version])
    assert family.refusal(b"NOTANAMQPHEADER") == REFUSALS[version]
    assert family.refusal(b"AMQP\x00\x01\x01\x00") == b"AMQP\x03\x01\x00\x00"
    assert sniff(REFUSALS[version]) is not None


def test_ports_of_amqp_know_no_protocol_of_rocketmq() -> None:
    assert AMQP_FAMILY.sniff(b"\x00\x00\x00\x80\x00\x00\x00\x70") is None


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (b"PRI * HT", "rocketmq.grpc_address, by default port 8081"),
        (b"AMQP\x00\x01\x01\x00", "a version of AMQP that is none of"),
        (b"\x16\x03\x01\x02", "TLS, but this port has none"),
        (b"NOT AMQP", "an unknown protocol"),
    ],
)
def test_a_client_at_the_wrong_port_is_recognised(start: bytes, words: str) -> None:
    assert words in AMQP_FAMILY.guess(start)
