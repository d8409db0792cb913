"""Delivery tags name queue, position and number."""

from __future__ import annotations

import pytest

from escrowmq.core.termini.tags import delivery_tag, parse_tag


def test_a_tag_has_16_bytes_and_is_read_back() -> None:
    tag = delivery_tag(3, 1 << 40, 7)
    assert len(tag) == 16
    assert parse_tag(tag) == (3, 1 << 40, 7)


def test_numbers_are_reduced_to_32_bits() -> None:
    assert parse_tag(delivery_tag(1, 2, (5 << 32) + 9)) == (1, 2, 9)


@pytest.mark.parametrize("tag", [b"", b"x" * 15, b"x" * 17])
def test_tags_of_others_are_recognised_by_their_length(tag: bytes) -> None:
    assert parse_tag(tag) is None
