"""The fields of flow, transfer and disposition."""

from __future__ import annotations

import dataclasses

from escrowmq.wire.amqp10.codec.composite import encode_composite
from escrowmq.wire.amqp10.codec.link_performatives import Disposition, Flow, Transfer


def test_fields_stand_in_the_order_of_the_specification() -> None:
    def names(kind: type) -> list[str]:
        return [field.name for field in dataclasses.fields(kind)]

    assert names(Flow)[:4] == ["next_incoming_id", "incoming_window", "next_outgoing_id", "outgoing_window"]
    assert names(Flow)[4:] == ["handle", "delivery_count", "link_credit", "available", "drain", "echo", "properties"]
    assert names(Transfer)[:6] == ["handle", "delivery_id", "delivery_tag", "message_format", "settled", "more"]
    assert names(Transfer)[6:] == ["rcv_settle_mode", "state", "resume", "aborted", "batchable"]
    assert names(Disposition) == ["role", "first", "last", "settled", "state", "batchable"]


def test_only_the_mandatory_fields_are_written_if_the_others_are_absent() -> None:
    assert encode_composite(Transfer(0)).hex() == "005314c0020143"
    assert encode_composite(Disposition(True, 7)).hex() == "005315c00402415207"
