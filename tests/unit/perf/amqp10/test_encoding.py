"""Transfers of the load: what a receiver decodes, and the numbers that are written when they are taken."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.perf.amqp10.encoding import Counters, TransferBlock
from escrowmq.perf.messages import LoadMessage, Variety, messages
from escrowmq.wire.amqp10.codec import sections
from escrowmq.wire.amqp10.codec.frames import FrameReader
from escrowmq.wire.amqp10.codec.performatives import Transfer, decode_performative
from escrowmq.wire.amqp10.codec.states import TransactionalState

VARIED = Variety(spread=20, message_ids=True, correlation_ids=True, timestamps=True, headers=True)


def decoded(data: memoryview) -> list[tuple[Transfer, bytes]]:
    reader = FrameReader(1 << 20)
    reader.feed(bytes(data))
    found = []
    while (frame := reader.next()) is not None:
        _, _, octets, at, end = frame
        transfer, at = decode_performative(octets, at, end)
        assert isinstance(transfer, Transfer)
        found.append((transfer, octets[at:end]))
    return found


def block(made: list[LoadMessage], counters: Counters, **changes: Any) -> TransferBlock:
    fields: dict[str, Any] = {"handle": 0, "durable": True, "settled": False, "frame_max": 65536}
    return TransferBlock(made, counters, **{**fields, **changes})


@pytest.mark.parametrize("variety", [Variety(), VARIED], ids=["uniform", "varied"])
def test_delivery_ids_and_tags_go_on_from_slice_to_slice(variety: Variety) -> None:
    made = list(messages(variety, 100, 8))
    counters = Counters()
    counters.deliveries = 300
    transfers = block(made, counters)
    found = [*decoded(transfers.slice(0, 5)), *decoded(transfers.slice(5, 3)), *decoded(transfers.slice(0, 2))]
    assert [transfer.delivery_id for transfer, _ in found] == list(range(300, 310))
    assert [transfer.delivery_tag for transfer, _ in found] == [n.to_bytes(4, "big") for n in range(300, 310)]
    assert (counters.deliveries, counters.transfers) == (310, 10)
    for message, (_, payload) in zip(made, found, strict=False):
        header, at = sections.split_head(payload)
        assert sections.decode_header(header).durable
        content = payload[at:]
        properties = sections.properties(content)
        assert (properties.message_id, properties.correlation_id) == (message.message_id, message.correlation_id)
        assert (sections.application_properties(content) or None) == message.headers
        assert sections.body(content) == (message.body,)


@pytest.mark.parametrize("variety", [Variety(), VARIED], ids=["uniform", "varied"])
def test_times_are_written_into_the_bodies(variety: Variety) -> None:
    transfers = block(list(messages(variety, 100, 4)), Counters())
    transfers.stamp(1, 2, 77)
    bodies = [b"".join(sections.body(payload[5 + 2 :])) for _, payload in decoded(transfers.slice(0, 4))]  # type: ignore[arg-type]
    assert [int.from_bytes(body[:8], "big") for body in bodies] == [0, 77, 77, 0]


@pytest.mark.parametrize("variety", [Variety(), VARIED], ids=["uniform", "varied"])
def test_the_transaction_is_written_into_each_transfer(variety: Variety) -> None:
    transfers = block(list(messages(variety, 100, 4)), Counters(), transaction=b"\x00" * 8)
    transfers.transaction = b"12345678"
    found = decoded(transfers.slice(1, 3))
    assert [transfer.state for transfer, _ in found] == [TransactionalState(b"12345678")] * 3


def test_large_messages_take_several_frames() -> None:
    made = list(messages(Variety(), 2000, 2))
    counters = Counters()
    transfers = block(made, counters, frame_max=512)
    found = decoded(transfers.slice(0, 2))
    assert len(found) == 2 * transfers.frames == counters.transfers
    assert [transfer.more for transfer, _ in found[: transfers.frames]] == [True] * (transfers.frames - 1) + [False]
    payload = b"".join(payload for _, payload in found[: transfers.frames])
    assert payload.endswith(made[0].body)
