"""Sizes, durations and addresses: accepted and refused texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.units import Address, format_size, parse_address, parse_duration, parse_share, parse_size


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (0, 0),
        (4096, 4096),
        ("512", 512),
        ("512B", 512),
        ("1kB", 1000),
        ("1KB", 1000),
        ("64KiB", 65536),
        (" 128 MiB ", 128 << 20),
        ("1.5GB", 1_500_000_000),
        ("2TiB", 2 << 40),
    ],
)
def test_sizes(text: object, expected: int) -> None:
    assert parse_size(text) == expected


@pytest.mark.parametrize("value", ["", "MiB", "1 XB", "-1", -1, 1.5, True, None, "1e9", "1MiBB", "１KiB"])
def test_what_is_no_size(value: object) -> None:
    with pytest.raises(ValueError, match="a size"):
        parse_size(value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (0, 0.0),
        (2.5, 2.5),
        ("10", 10.0),
        ("250ms", 0.25),
        ("30s", 30.0),
        ("5m", 300.0),
        ("5 min", 300.0),
        ("1h", 3600.0),
        ("2d", 172800.0),
    ],
)
def test_durations(text: object, expected: float) -> None:
    assert parse_duration(text) == pytest.approx(expected)


@pytest.mark.parametrize(("text", "expected"), [("0%", 0.0), ("2.5 %", 0.025), ("100%", 1.0)])
def test_shares(text: str, expected: float) -> None:
    assert parse_share(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "%", "5", "101%", "-1%", "nan%"])
def test_what_is_no_share(text: str) -> None:
    with pytest.raises(ValueError, match="a share"):
        parse_share(text)


@pytest.mark.parametrize("value", ["", "s", "-1s", -0.5, float("inf"), float("nan"), False, None, "1 year"])
def test_what_is_no_duration(value: object) -> None:
    with pytest.raises(ValueError, match="a duration"):
        parse_duration(value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:5672", Address("127.0.0.1", 5672)),
        ("localhost:0", Address("localhost", 0)),
        ("[::1]:5672", Address("::1", 5672)),
    ],
)
def test_addresses_and_back(text: str, expected: Address) -> None:
    assert parse_address(text) == expected
    assert str(expected) == text
    assert parse_address(expected) is expected


@pytest.mark.parametrize(
    "value", ["", "5672", ":5672", "host", "host:", "host:65536", "host:-1", "::1:5672", "[a]:1", 5672]
)
def test_what_is_no_address(value: object) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        parse_address(value)


@given(st.integers(0, 1 << 50))
def test_a_formatted_size_is_the_same_size(size: int) -> None:
    assert parse_size(format_size(size)) == size


def test_sizes_are_formatted_in_the_largest_unit_that_divides_them() -> None:
    assert [format_size(size) for size in (0, 1000, 1024, 131072, 3 << 30)] == ["0B", "1000B", "1KiB", "128KiB", "3GiB"]
