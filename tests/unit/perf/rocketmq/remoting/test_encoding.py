"""Encoded sends, and the places in them that are written when they are sent."""

from __future__ import annotations

from escrowmq.perf.messages import Variety, messages
from escrowmq.perf.rocketmq.properties import FIRST_NUMBER, id_prefix, parsed
from escrowmq.perf.rocketmq.remoting.encoding import SendBlock, SendTarget, stamp_of
from escrowmq.wire.rocketmq.remoting.frames import Command, decode
from escrowmq.wire.rocketmq.remoting.messages import decode_batch

MADE = list(messages(Variety(message_ids=True), 100, 4))
PREFIX = id_prefix(32)


def sends(target: SendTarget, number: int, count: int, stamp: int | None = None) -> list[Command]:
    """Return sends as the broker reads them."""
    data, found = SendBlock(MADE, target, PREFIX).take(number, count, stamp), []
    while data:
        size = int.from_bytes(data[:4], "big") + 4
        found.append(decode(data[:size]))
        data = data[size:]
    return found


def test_each_send_has_its_own_number_and_its_message_its_own_id() -> None:
    found = sends(SendTarget("T", 4, "G"), 7, 3)
    assert [each.opaque - FIRST_NUMBER for each in found] == [7, 8, 9]
    idents = [parsed(each.fields["i"])["UNIQ_KEY"] for each in found]
    assert idents == [f"{PREFIX}{FIRST_NUMBER + number}" for number in (7, 8, 9)]


def test_the_queues_of_the_topic_are_used_in_turn() -> None:
    assert [each.fields["e"] for each in sends(SendTarget("T", 2, "G"), 0, 4)] == ["0", "1", "0", "1"]


def test_a_half_message_names_its_producer_group() -> None:
    (found,) = sends(SendTarget("T", 1, "G", transactional=True), 0, 1)
    properties = parsed(found.fields["i"])
    assert (properties["TRAN_MSG"], properties["PGROUP"]) == ("true", "G")


def test_each_message_of_a_batch_has_its_own_id() -> None:
    found = sends(SendTarget("T", 1, "G", batch=2), 1, 1)
    parts = decode_batch(found[0].body, 10)
    idents = [parsed(part.properties.decode())["UNIQ_KEY"] for part in parts]
    assert idents == [f"{PREFIX}{FIRST_NUMBER + number}" for number in (2, 3)]


def test_the_time_is_written_into_each_body() -> None:
    (single,) = sends(SendTarget("T", 1, "G"), 0, 1, stamp=12345)
    (batch,) = sends(SendTarget("T", 1, "G", batch=2), 0, 1, stamp=12345)
    bodies = [single.body, *(part.body for part in decode_batch(batch.body, 10))]
    assert [stamp_of(body) for body in bodies] == [12345] * 3
