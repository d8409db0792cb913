"""The table of formats."""

from __future__ import annotations

from escrowmq.wire.amqp091.keyed import KEYED
from escrowmq.wire.amqp091.packed import PACKED
from escrowmq.wire.amqp091.publication import PROTOCOL
from escrowmq.wire.amqp10.publication import PROTOCOL as SECTIONS
from escrowmq.wire.formats import FORMATS


def test_every_form_that_a_protocol_stores_has_a_reader() -> None:
    assert set(FORMATS) == {PROTOCOL, PACKED, KEYED, SECTIONS}
