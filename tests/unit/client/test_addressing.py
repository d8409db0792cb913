"""Bulk publishes take one address for all messages or one for each."""

from __future__ import annotations

import pytest

from escrowmq.client.addressing import Addresses, SomeProperties, octets
from escrowmq.client.encoding import Encoder, Heads
from escrowmq.client.errors import ProgrammingError
from escrowmq.wire.amqp091.properties import NO_PROPERTIES, Properties

ENCODER = Encoder(1, 0)
PROPS = Properties(delivery_mode=2)


def heads(key: str, properties: SomeProperties = None) -> Heads:
    return ENCODER.heads("e", key, octets(properties), False)


def test_one_address_can_serve_all_messages() -> None:
    addresses = Addresses(ENCODER, "e", "k", PROPS, False)
    assert addresses.next(5) is heads("k", PROPS)
    assert addresses.next(7) is heads("k", PROPS.encode())
    addresses.finish()


def test_each_message_can_have_its_own_address() -> None:
    addresses = Addresses(ENCODER, "e", ["a", "b", "a", "a"], iter([PROPS, None, PROPS, PROPS]), False)
    assert addresses.next(2) == [heads("a", PROPS), heads("b")]
    assert addresses.next(2) is heads("a", PROPS)  # both messages share their heads
    addresses.finish()


def test_keys_and_properties_can_vary_independently() -> None:
    assert Addresses(ENCODER, "e", ["a", "b"], PROPS, False).next(2) == [heads("a", PROPS), heads("b", PROPS)]
    given: list[SomeProperties] = [None, PROPS, b"\x00\x00"]
    assert Addresses(ENCODER, "e", "k", given, False).next(3) == [heads("k"), heads("k", PROPS), heads("k")]


def test_any_number_of_keys_is_encoded() -> None:
    keys = [str(number % 20_000) for number in range(40_000)]
    addresses = Addresses(ENCODER, "e", keys, PROPS, False)
    found: list[Heads] = []
    for _ in range(20):
        some = addresses.next(2000)
        assert isinstance(some, list)
        found += some
    assert [head.method for head in found] == [heads(key, PROPS).method for key in keys]
    addresses.finish()


@pytest.mark.parametrize(("keys", "message"), [(["a"], "fewer"), (["a", "b", "c"], "more")])
def test_the_numbers_of_addresses_and_bodies_must_be_equal(keys: list[str], message: str) -> None:
    def publish(addresses: Addresses) -> None:
        addresses.next(2)
        addresses.finish()

    with pytest.raises(ProgrammingError, match=f"{message} routing keys than bodies"):
        publish(Addresses(ENCODER, "e", keys, None, False))
    with pytest.raises(ProgrammingError, match=f"{message} properties than bodies"):
        publish(Addresses(ENCODER, "e", "k", [None] * len(keys), False))


def test_values_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ProgrammingError, match="cannot be published"):
        Addresses(ENCODER, "e", "k" * 256, None, False).next(1)
    with pytest.raises(ProgrammingError, match="cannot be published"):
        Addresses(ENCODER, "e", ["a", "k" * 256], None, False).next(2)
    with pytest.raises(ProgrammingError, match="cannot be published"):
        Addresses(ENCODER, "e", ["a", ["b"]], None, False).next(2)  # type: ignore[list-item]
    with pytest.raises(ProgrammingError, match="priority"):
        Addresses(ENCODER, "e", "k", Properties(priority=256), False)
    with pytest.raises(ProgrammingError, match="cannot be encoded"):
        octets(Properties(message_id=7))  # type: ignore[arg-type]
    assert octets(None) == NO_PROPERTIES
