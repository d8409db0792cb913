"""The frames of `answers.py` are those of the general encoding, and nothing else is taken for one of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.wire.amqp010.codec.answers import (
    COMPLETED_SIZE,
    RESULT_SIZE,
    completed_frame,
    read_completed,
    read_result,
    result_frame,
)
from escrowmq.wire.amqp010.codec.commands import encode_command
from escrowmq.wire.amqp010.codec.frames import COMMAND, assembly, control_frame
from escrowmq.wire.amqp010.codec.spec import ExecutionResult, SessionCompleted, XaResult

CHANNELS = st.integers(0, 0xFFFF)
NUMBERS = st.integers(0, 0xFFFFFFFF)


@given(CHANNELS, NUMBERS, NUMBERS)
def test_a_completion_is_encoded_as_by_the_specification(channel: int, first: int, last: int) -> None:
    frame = completed_frame(channel, first, last)
    assert frame == control_frame(channel, SessionCompleted(((first, last),)))
    assert len(frame) == COMPLETED_SIZE
    assert read_completed(b"x" + frame, 1) == (channel, first, last)


@given(CHANNELS, NUMBERS, st.integers(0, 0xFFFF), st.booleans())
def test_a_result_is_encoded_as_by_the_specification(channel: int, number: int, status: int, sync: bool) -> None:
    payload = encode_command(ExecutionResult(number, XaResult(status)), sync=sync)
    general = b"".join(assembly(channel, [(COMMAND, payload)], 4096))
    assert len(general) == RESULT_SIZE
    assert read_result(b"x" + general, 1) == (channel, number, status)
    if not sync:
        assert result_frame(channel, number, status) == general


@pytest.mark.parametrize("place", [0, 1, 5, 12, 13, 14, 15, 16, 17])
def test_another_frame_is_not_taken_for_a_completion(place: int) -> None:
    frame = bytearray(completed_frame(1, 2, 3))
    frame[place] ^= 0x10
    assert read_completed(frame, 0) is None


@pytest.mark.parametrize("place", [0, 1, 5, 12, 13, 14, 16, 17, 22, 25, 27, 29])
def test_another_frame_is_not_taken_for_a_result(place: int) -> None:
    frame = bytearray(result_frame(1, 2, 3))
    frame[place] ^= 0x10
    assert read_result(frame, 0) is None
