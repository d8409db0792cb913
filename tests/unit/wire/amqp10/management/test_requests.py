"""Requests and responses as messages."""

from __future__ import annotations

import pytest

from escrowmq.core.conditions import Condition
from escrowmq.wire.amqp10.codec.composite import encode_composite
from escrowmq.wire.amqp10.codec.encoding import encode
from escrowmq.wire.amqp10.codec.sections import DATA, VALUE, Header, Properties, encode_header, encode_section
from escrowmq.wire.amqp10.codec.types import ULong, Uuid
from escrowmq.wire.amqp10.errors import DECODE_ERROR, INVALID_FIELD
from escrowmq.wire.amqp10.management.requests import STATUS, Problem, decoded, refused
from tests.unit.wire.amqp10.management.manager import REQUESTS, Manager, request_of


@pytest.fixture
def manager() -> Manager:
    return Manager()


@pytest.mark.parametrize("ident", ["text", ULong(7), Uuid(bytes(range(16))), b"\x00binary"])
def test_the_correlation_id_is_the_message_id_of_the_request(manager: Manager, ident: object) -> None:
    assert manager.ask("GET", "/queues/q", ident=ident).code == 404


def test_every_refusal_of_the_core_has_a_status_code() -> None:
    assert STATUS.keys() == set(Condition)
    assert all(400 <= code < 600 for code in STATUS.values())


def test_sections_may_be_in_any_order(manager: Manager) -> None:
    properties = encode_composite(Properties(message_id="id", to="/queues/q", subject="PUT", reply_to="$me"))
    manager.send(b"\x00\x53\x70\x45" + encode_section(VALUE, {"durable": False}) + properties)
    assert manager.receive()[1].code == 201


def test_header_and_annotations_are_ignored(manager: Manager) -> None:
    head = encode_header(Header(durable=True, priority=9)) + encode_section(0x72, {}) + encode_section(0x74, {"a": 1})
    manager.send(head + request_of("GET", "/queues/q"))
    assert manager.receive()[1].code == 404


def test_a_request_without_a_message_id_costs_the_link(manager: Manager) -> None:
    manager.send(request_of("GET", "/queues/q", ident=None))
    manager.client.detached(REQUESTS, INVALID_FIELD)


@pytest.mark.parametrize(
    "message",
    [
        b"\x00",
        b"\x40",
        encode("a"),
        b"\x00\x40\x40",
        b"\x00\xc0\x01\x00\x40",
        b"\x00\x53\x73\x40",
        encode_section(0x73, [1, 2, 3, 4, 5]),
        request_of("GET", "/queues/q")[:-2],
    ],
)
def test_a_malformed_message_costs_the_link(manager: Manager, message: bytes) -> None:
    manager.send(message)
    manager.client.detached(REQUESTS, DECODE_ERROR)


@pytest.mark.parametrize("cut", range(len(request_of("GET", "/queues/q?a=b"))))
def test_a_request_that_is_cut_off_never_fails_otherwise(cut: int) -> None:
    manager = Manager()
    manager.send(request_of("GET", "/queues/q?a=b")[:cut])
    assert not manager.client.port.closed


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/", 404),
        ("GET", "", 404),
        ("GET", None, 404),
        ("GET", "queues/q", 404),
        ("GET", "/queues", 404),
        ("GET", "/queues/a/b", 404),
        ("GET", "/queues/%ff", 400),
        ("PATCH", "/queues/q", 405),
        (None, "/queues/q", 405),
    ],
)
def test_an_unknown_resource_or_method_is_a_problem(
    manager: Manager, method: str | None, path: str | None, code: int
) -> None:
    manager.send(request_of(method, path))
    answer = manager.receive()[1]
    assert answer.code == code
    assert isinstance(answer.body, str)


def test_a_body_may_be_data(manager: Manager) -> None:
    properties = Properties(message_id="id", to="/auth/tokens", subject="PUT", reply_to="$me")
    manager.send(encode_composite(properties) + encode_section(DATA, b"token"))
    assert manager.receive()[1] == (204, None)


def test_explanations_are_cut() -> None:
    assert len(refused(Problem(400, "a" * 5000 + "\ud800")).body) == 1000
    assert refused(Problem(400, "\ud800")).body == "?"


def test_paths_are_decoded_strictly() -> None:
    assert decoded("a%20b+c%2F%C3%BC") == "a b+c/ü"
    with pytest.raises(Problem):
        decoded("%C3")
