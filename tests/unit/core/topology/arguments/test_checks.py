"""Checks of single argument values."""

from __future__ import annotations

import pytest

from escrowmq.core.topology.arguments.checks import (
    LONGEST_DURATION,
    Check,
    Refused,
    at_most,
    boolean,
    duration,
    integer,
    natural,
    one_of,
    parse_period,
    period,
    positive,
    routing_key,
    text,
    version,
)


class Short(int):
    """A narrow integer of a protocol."""


class Timestamp(int):
    """A protocol's time, which must not pass as a number."""


@pytest.mark.parametrize(
    ("check", "value", "decoded"),
    [
        (integer, -5, -5),
        (natural, 0, 0),
        (duration, LONGEST_DURATION, LONGEST_DURATION),
        (positive(), 1, 1),
        (at_most(255), 255, 255),
        (version, 2, 2),
        (boolean, False, False),
        (text, "", ""),
        (one_of("a", "b", otherwise="no"), "b", "b"),
        (period("no"), "2h", 7_200_000),
    ],
)
def test_allowed_values_are_decoded(check: Check, value: object, decoded: object) -> None:
    assert check(value, {}) == decoded


@pytest.mark.parametrize(
    ("check", "value", "reason"),
    [
        (integer, True, '"expected integer, got bool"'),
        (integer, Timestamp(5), '"expected integer, got timestamp"'),
        (natural, -1, "{value_negative,-1}"),
        (duration, LONGEST_DURATION + 1, "{value_too_large,315360000001}"),
        (positive(), 0, "{value_zero,0}"),
        (positive(then=duration), LONGEST_DURATION + 1, "{value_too_large,315360000001}"),
        (at_most(255), 256, "{max_value_exceeded,256}"),
        (version, 3, "\"unsupported queue version '3'\""),
        (boolean, 1, "{unacceptable_type,signedint}"),
        (text, b"x", "{unacceptable_type,binary}"),
        (one_of("a", otherwise="not {}"), "{b}", "not {b}"),
        (one_of("a", otherwise="no"), 1, "{unacceptable_type,signedint}"),
        (routing_key("x"), "k", "routing_key_but_no_dlx_defined"),
        (period("no"), "2", "no"),
    ],
)
def test_other_values_are_refused_with_a_reason(check: Check, value: object, reason: str) -> None:
    with pytest.raises(Refused) as refused:
        check(value, {})
    assert refused.value.reason == reason


def test_narrow_integers_become_plain_ones() -> None:
    assert type(integer(Short(5), {})) is int


@pytest.mark.parametrize("key", ["k" * 256, "ü" * 128])
def test_a_routing_key_over_255_bytes_is_refused(key: str) -> None:
    assert routing_key("x")(key[:127], {"x": ""}) == key[:127]
    with pytest.raises(Refused, match="routing_key_too_long"):
        routing_key("x")(key, {"x": ""})


def test_a_routing_key_requires_its_exchange() -> None:
    assert routing_key("x")("k", {"x": ""}) == "k"


@pytest.mark.parametrize(
    ("given", "milliseconds"),
    [
        ("7D", 604_800_000),
        ("1Y", 31_536_000_000),
        ("2M", 5_184_000_000),
        ("1h", 3_600_000),
        ("5m", 300_000),
        ("9s", 9_000),
    ],
)
def test_periods_are_parsed(given: str, milliseconds: int) -> None:
    assert parse_period(given) == milliseconds


@pytest.mark.parametrize(
    "given", ["", "D", "7", "0s", "00h", "-1D", "7d", "1D ", " 1D", "1D\n", "1.5D", "١D", "9" * 5000 + "s"]
)
def test_other_texts_are_not_periods(given: str) -> None:
    assert parse_period(given) is None
