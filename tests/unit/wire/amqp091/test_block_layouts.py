"""The contents of a block are checked together, as strictly as one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.wire.amqp091 import blocks
from escrowmq.wire.amqp091.block_layouts import Checked, check
from escrowmq.wire.amqp091.blocks import BlockError
from escrowmq.wire.amqp091.properties import Properties
from escrowmq.wire.amqp091.shape import Survey, Values
from escrowmq.wire.amqp091.table import FieldTable
from tests.harness.blocks import Sent, block_of

PERSISTENT = Values(durable=True, priority=0, expiration=b"")


def own(number: int, key: str = "k", **more: object) -> Sent:
    headers: FieldTable = {"n": f"{number:04}"}
    given = {"delivery_mode": 2, "message_id": f"id-{number:04}", "headers": headers, **more}
    return f"{key}{number:04}", Properties(**given).encode(), b"%d" % number  # type: ignore[arg-type]


def checked(*sent: Sent, keyed: bool = True) -> list[Checked]:
    """Check messages that are said to have one layout."""
    block = blocks.decode(block_of(*sent, keyed=keyed, layouts=[list(range(len(sent)))]))
    return check(block, block.layouts[0], 1000, 1000)


@pytest.mark.parametrize("keyed", [True, False])
def test_messages_that_differ_in_values_are_one_group(keyed: bool) -> None:
    sent = [own(number) for number in range(20)]
    keys = [key.encode() for key, _, _ in sent] if keyed else []
    assert checked(*sent, keyed=keyed) == [Checked(list(range(20)), PERSISTENT, keys)]


def test_few_messages_are_surveyed() -> None:
    assert checked(own(1, priority=2), own(2, priority=3)) == [
        Checked([0], Values(durable=True, priority=2, expiration=b""), [b"k0001"]),
        Checked([1], Values(durable=True, priority=3, expiration=b""), [b"k0002"]),
    ]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(own(5, delivery_mode=1), id="another persistence"),
        pytest.param(own(5, headers={"m": "0005"}), id="another header"),
        pytest.param(own(5, message_id="id-00005"), id="a longer id"),
        pytest.param(own(5, key="kk"), id="a longer key"),
        pytest.param(own(5, message_id=None, correlation_id="id-0005"), id="another property"),
        pytest.param(own(5, headers={"n": 5}), id="another type"),
    ],
)
def test_a_message_of_another_layout_is_refused(other: Sent) -> None:
    with pytest.raises(BlockError):
        checked(own(1), own(2), own(3), other, own(4))


@pytest.mark.parametrize("keyed", [True, False])
def test_a_text_that_is_not_ascii_is_decoded_alone(keyed: bool) -> None:
    found = checked(*[own(number) for number in range(4)], own(4, message_id="id-äö"), keyed=keyed)
    assert [(group.rows, group.values) for group in found] == [
        *[([number], PERSISTENT) for number in range(4)],
        ([4], None),
    ]


def test_a_list_that_the_survey_cannot_judge_is_decoded_alone() -> None:
    found = checked(*[own(number, user_id="guest") for number in range(6)])
    assert [group.values for group in found] == [None] * 6


@given(st.integers(0, 19), st.data())
def test_changed_octets_are_refused_or_harmless(row: int, data: st.DataObject) -> None:
    """Whatever the check lets through is one header frame and one body frame, with the values that were found."""
    sent = [own(number) for number in range(20)]
    block = blocks.decode(block_of(*sent, layouts=[list(range(20))]))
    at = data.draw(st.integers(block.starts[row], block.stops[row] - 1))
    damaged = bytearray(block.data)
    damaged[at] = data.draw(st.integers(0, 255))
    block = block._replace(data=bytes(damaged))
    try:
        groups = check(block, block.layouts[0], 1000, 1000)
    except BlockError:
        return
    assert sorted(row for group in groups for row in group.rows) == list(range(20))
    for group in groups:
        for each in group.rows:
            content = block.data[block.starts[each] : block.stops[each]]
            packed = content[1 + content[0] + 4 :]
            size = int.from_bytes(packed[:4], "big")
            body = int.from_bytes(packed[8:16], "big")
            assert packed[4:8] == b"\0\x3c\0\0"
            assert packed[4 + size :] == b"\xce\x03\0\1" + body.to_bytes(4, "big") + packed[12 + size : -1] + b"\xce"
            assert len(packed) == size + 13 + body
            if group.values is not None:
                assert Survey(packed, 16, 4 + size).values == group.values


@pytest.mark.parametrize(("most_header", "most_body"), [(20, 1000), (1000, 3)])
def test_limits_are_checked(most_header: int, most_body: int) -> None:
    block = blocks.decode(block_of(("k", Properties(message_id="m" * 20).encode(), b"body")))
    with pytest.raises(BlockError):
        check(block, [0], most_header, most_body)
