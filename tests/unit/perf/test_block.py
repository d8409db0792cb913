"""Blocks of publishes: every unit a publish of its own, times where the bodies begin."""

from __future__ import annotations

from struct import unpack_from

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import body, commands, frame, header

from escrowmq.perf.block import BLOCK_BYTES, PublishBlock


def block(
    size: int = 100, count: int = 0, keys: list[str] | None = None, spread: int = 0, ids: bool = False
) -> PublishBlock:
    return PublishBlock(1, "", keys or ["queue"], size, True, 131072, count, spread, ids)


def stamps(publishes: PublishBlock) -> list[int]:
    return [unpack_from(">Q", publishes.slice(i, 1), publishes.body_at)[0] for i in range(publishes.count)]


def parts(publish: memoryview) -> tuple[commands.Basic.Publish, header.ContentHeader, bytes]:
    """The method, the header and the body of one publish of at most one body frame."""
    data = bytes(publish)
    used, _, method = frame.unmarshal(data)
    more, _, head = frame.unmarshal(data[used:])
    _, _, content = frame.unmarshal(data[used + more :])
    assert isinstance(method, commands.Basic.Publish)
    assert isinstance(head, header.ContentHeader)
    assert isinstance(content, body.ContentBody)
    assert head.body_size == len(content.value)
    return method, head, content.value


def test_routing_keys_take_turns() -> None:
    publishes = block(count=4, keys=["a-0", "a-1"])
    found = [parts(publishes.slice(number, 1))[0].routing_key for number in range(publishes.count)]
    assert found == ["a-0", "a-1", "a-0", "a-1"]


def test_bodies_differ_and_the_same_figures_give_the_same_bytes() -> None:
    publishes = block(count=50)
    assert len({parts(publishes.slice(number, 1))[2] for number in range(50)}) == 50
    assert bytes(publishes.view) == bytes(block(count=50).view)


def test_sizes_are_spread_on_either_side() -> None:
    publishes = block(100, count=300, spread=40)
    sizes = [len(parts(publishes.slice(number, 1))[2]) for number in range(300)]
    assert min(sizes) < 65
    assert max(sizes) > 135
    assert all(60 <= size <= 140 for size in sizes)


def test_message_ids_are_of_one_length_and_differ() -> None:
    publishes = block(count=20, ids=True)
    ids = [parts(publishes.slice(number, 1))[1].properties.message_id for number in range(20)]
    assert len(set(ids)) == 20
    assert {len(one) for one in ids if one} == {36}


def test_a_block_without_a_count_fills_one_large_write() -> None:
    publishes = block()
    assert BLOCK_BYTES - len(publishes.slice(0, 1)) < len(publishes.view) <= BLOCK_BYTES
    assert publishes.slice(0, publishes.count) == publishes.view


@pytest.mark.parametrize("size", [0, 7, 8, 300_000])
def test_any_body_size_gives_whole_publishes(size: int) -> None:
    publishes = block(size)
    assert publishes.count >= 1
    assert publishes.slice(0, 1)[-1] == 0xCE


@given(data=st.data(), spread=st.sampled_from([0, 40]))
def test_a_time_goes_into_the_chosen_bodies_and_nowhere_else(data: st.DataObject, spread: int) -> None:
    publishes = block(count=9, spread=spread)
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
