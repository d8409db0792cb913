"""Message ids that name a place in the broker."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.wire.rocketmq.ids import StreamPlace, half_of, half_offset, message_id, offset_of, place_of, place_offset


@given(st.integers(0, 2**62 - 1))
def test_a_half_message_is_found_by_its_offset(number: int) -> None:
    assert half_of(half_offset(number)) == number
    assert place_of(half_offset(number)) is None


@given(st.integers(0, 2**24 - 1), st.integers(1, 2**38 - 1))
def test_a_place_is_found_by_its_offset(stream: int, position: int) -> None:
    offset = place_offset(StreamPlace(stream, position))
    assert place_of(offset) == StreamPlace(stream, position)
    assert half_of(offset) is None


@pytest.mark.parametrize("place", [StreamPlace(2**24, 1), StreamPlace(1, 2**38)])
def test_a_place_beyond_63_bits_has_no_offset(place: StreamPlace) -> None:
    assert place_offset(place) == 0
    assert place_of(0) is None


@pytest.mark.parametrize("offset", [-1, 1 << 63])
def test_other_numbers_stand_for_nothing(offset: int) -> None:
    assert half_of(offset) is None
    assert place_of(offset) is None


@pytest.mark.parametrize(("host", "digits"), [(bytes((127, 0, 0, 1)), 32), (bytes(16), 56)])
def test_an_id_has_the_address_and_the_offset(host: bytes, digits: int) -> None:
    text = message_id(host, 10911, 77)
    assert len(text) == digits
    assert offset_of(text) == 77
    assert offset_of(text.lower()) == 77


def test_an_id_is_written_like_rocketmq_writes_it() -> None:
    assert message_id(bytes((127, 0, 0, 1)), 10911, 258) == "7F00000100002A9F0000000000000102"


@pytest.mark.parametrize("text", ["", "7F", "G" * 32, " " * 32, "٣" * 32, "7F " + "0" * 29])
def test_other_texts_are_no_ids(text: str) -> None:
    assert offset_of(text) is None


@given(st.text())
def test_any_text_is_an_id_or_none(text: str) -> None:
    assert offset_of(text) is None or len(text) in {32, 56}
