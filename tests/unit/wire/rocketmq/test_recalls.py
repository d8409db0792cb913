"""Handles of delayed messages."""

from __future__ import annotations

import pytest

from escrowmq.wire.rocketmq.recalls import LONGEST, DelayedPlace, place_in


@pytest.mark.parametrize("message_id", ["u", "a-b-c", ""])
def test_a_handle_names_a_place(message_id: str) -> None:
    assert place_in(f"1f-a0-{message_id}") == DelayedPlace(31, 160, message_id)


@pytest.mark.parametrize(
    "handle", ["", "1", "1-2", "x-2-u", "1-y-u", "-1-2-u", "1-" + "f" * 17 + "-u", "ä-1-u", "1-1-" + "u" * LONGEST]
)
def test_other_texts_name_none(handle: str) -> None:
    assert place_in(handle) is None
