"""Memory that can be taken back and that is not in deliveries: a snapshot and the audit find none in it."""

from __future__ import annotations

from escrowmq.server.relief import MemoryOwner
from escrowmq.wire.amqp10.parts import Parts
from escrowmq.wire.amqp10.relievable import WithoutDeliveries
from escrowmq.wire.amqp10.transactions import LocalTransaction


def test_there_are_no_deliveries() -> None:
    nothing = WithoutDeliveries()
    assert not nothing.held()
    assert not nothing.held_part(0, 10)
    assert nothing.copy_ahead(0, 10) == (1, 0)
    assert nothing.next_tag == 0


def test_incomplete_messages_and_transactions_can_be_taken_back() -> None:
    methods = {"owner", "next_tag", "held_bytes", "give_up"}
    assert all(methods <= set(dir(kind)) for kind in (Parts, LocalTransaction, MemoryOwner))
