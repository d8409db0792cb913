"""Counting deliveries in received bytes: alike and different, whole and in pieces, in one frame and in several."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.perf.amqp10.encoding import Counters, TransferBlock
from escrowmq.perf.amqp10.reading import TransferWalk
from escrowmq.perf.errors import PerfError
from escrowmq.perf.messages import Variety, messages
from escrowmq.wire.amqp10.codec.frames import EMPTY_FRAME, frame
from escrowmq.wire.amqp10.codec.performatives import Flow, encode_performative

FLOW = Flow(incoming_window=1, next_outgoing_id=2, outgoing_window=3)
VARIED = Variety(spread=20, message_ids=True)


def transfers(variety: Variety, count: int, *, size: int = 100, frame_max: int = 65536) -> bytes:
    counters = Counters()
    made = list(messages(variety, size, count))
    block = TransferBlock(made, counters, handle=0, durable=True, settled=False, frame_max=frame_max)
    return bytes(block.slice(0, count))


def walk(data: bytes, step: int, *, every: bool = False) -> tuple[TransferWalk, list[Any], list[bytes]]:
    others: list[Any] = []
    payloads: list[bytes] = []
    found = TransferWalk(others.append, payloads.append, every=every)
    waiting = bytearray()
    for at in range(0, len(data), step):
        waiting += data[at : at + step]
        del waiting[: found.feed(waiting, len(waiting))]
    assert not waiting
    return found, others, payloads


@pytest.mark.parametrize("every", [True, False])
@pytest.mark.parametrize("step", [1, 13, 1000, 10**6])
@pytest.mark.parametrize("variety", [Variety(), VARIED], ids=["uniform", "varied"])
def test_every_delivery_counts_once(variety: Variety, step: int, every: bool) -> None:
    flow = frame(0, encode_performative(FLOW))
    data = transfers(variety, 40) + flow + EMPTY_FRAME + transfers(variety, 3)
    found, others, payloads = walk(data, step, every=every)
    assert (found.count, found.transfers, found.first) == (43, 43, 0)
    assert others == [FLOW]
    assert len(payloads) == 43 if every else payloads


@pytest.mark.parametrize("step", [1, 700, 10**6])
def test_frames_of_a_large_message_are_one_delivery(step: int) -> None:
    found, _, payloads = walk(transfers(Variety(), 5, size=2000, frame_max=512), step, every=True)
    assert found.count == 5
    assert found.transfers > 20
    assert {len(payload) for payload in payloads} == {len(payloads[0])}


def test_nonsense_is_an_error() -> None:
    with pytest.raises(PerfError, match="frame of 3 bytes"):
        walk(b"\x00\x00\x00\x03\x02\x00\x00\x00", 8)
    with pytest.raises(PerfError, match="cannot be decoded"):
        walk(frame(0, b"\x00\x53\x13\x01"), 100)
