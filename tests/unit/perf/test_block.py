"""Blocks of publishes: every unit a publish of its own, times where the bodies begin."""

from __future__ import annotations

from struct import unpack_from

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, frame

from escrowmq.perf.block import BLOCK_BYTES, PublishBlock


def block(size: int = 100, count: int = 0, keys: list[str] | None = None) -> PublishBlock:
    return PublishBlock(1, "", keys or ["queue"], size, persistent=True, frame_max=131072, count=count)


def stamps(publishes: PublishBlock) -> list[int]:
    return [
        unpack_from(">Q", publishes.view, i * publishes.unit + publishes.body_at)[0] for i in range(publishes.count)
    ]


def test_routing_keys_take_turns() -> None:
    publishes = block(count=4, keys=["a-0", "a-1"])
    found = []
    for number in range(publishes.count):
        _, _, method = frame.unmarshal(bytes(publishes.slice(number, 1)))
        assert isinstance(method, commands.Basic.Publish)
        found.append(method.routing_key)
    assert found == ["a-0", "a-1", "a-0", "a-1"]


def test_a_block_without_a_count_fills_one_large_write() -> None:
    publishes = block()
    assert BLOCK_BYTES - publishes.unit < len(publishes.view) <= BLOCK_BYTES
    assert len(publishes.view) == publishes.count * publishes.unit


@pytest.mark.parametrize("size", [0, 7, 8, 300_000])
def test_any_body_size_gives_whole_publishes(size: int) -> None:
    publishes = block(size)
    assert publishes.count >= 1
    assert publishes.view[publishes.unit - 1] == 0xCE


@given(st.data())
def test_a_time_goes_into_the_chosen_bodies_and_nowhere_else(data: st.DataObject) -> None:
    publishes = block(count=9)
    before = bytes(publishes.view)
    first = data.draw(st.integers(0, 8))
    number = data.draw(st.integers(1, 9 - first))
    time = data.draw(st.integers(1, 2**63))
    publishes.stamp(first, number, time)
    assert stamps(publishes) == [time if first <= i < first + number else 0 for i in range(9)]
    publishes.stamp_each(first, [0] * number)
    assert bytes(publishes.view) == before


def test_each_body_can_have_its_own_time() -> None:
    publishes = block(count=4)
    publishes.stamp_each(1, [5, 6])
    assert stamps(publishes) == [0, 5, 6, 0]


def test_routing_keys_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="one length"):
        block(keys=["a", "bb"])
