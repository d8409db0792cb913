"""Addresses of queues in messages that cross protocols."""

from __future__ import annotations

import pytest

from escrowmq.wire.addresses import exchange_address, parts_of_address, queue_address, queue_of


@pytest.mark.parametrize(
    ("name", "address"),
    [("q", "/queues/q"), ("a/b c%", "/queues/a%2Fb%20c%25"), ("\xe4", "/queues/%C3%A4"), ("", "/queues/")],
)
def test_names_are_percent_encoded(name: str, address: str) -> None:
    assert queue_address(name) == address
    assert queue_of(address) == name


@pytest.mark.parametrize("address", ["q", "/exchanges/e/k", "queue://q"])
def test_other_addresses_stay_as_they_are(address: str) -> None:
    assert queue_of(address) == address


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        (queue_address("a/b"), ("", "a/b")),
        (exchange_address("a/b", "k/%"), ("a/b", "k/%")),
        (exchange_address("e"), ("e", "")),
        ("q", ("", "q")),
    ],
)
def test_an_address_names_an_exchange_and_a_routing_key(address: str, parts: tuple[str, str]) -> None:
    assert parts_of_address(address) == parts
