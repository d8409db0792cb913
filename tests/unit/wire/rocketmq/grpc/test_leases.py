"""Receipts name leases, and go on naming them while the broker renews them."""

from __future__ import annotations

from typing import cast

import pytest

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.groups.group import Group
from escrowmq.core.groups.options import Handle
from escrowmq.wire.rocketmq.grpc.answers import RocketmqRefusal
from escrowmq.wire.rocketmq.grpc.leases import LEASE_MS, LONGEST_MS, PIECE, RENEW_MS, RenewedLeases, handle_of, receipt
from tests.unit.wire.amqp091.clients import Server, server

HANDLE = Handle(1, 2, 3, (1 << 62) + 4)


class Renewals:
    """A group that counts renewals."""

    def __init__(self) -> None:
        self.times: list[int] = []
        self.ended = False

    def change(self, handle: Handle, invisible_ms: int) -> tuple[Handle, int]:
        if self.ended:
            raise BrokerError(Condition.NOT_FOUND, "stale")
        self.times.append(invisible_ms)
        return handle._replace(generation=handle.generation + 1), 0


def begun() -> tuple[Server, Renewals, RenewedLeases]:
    made, group = server(), Renewals()
    leases = RenewedLeases(made.broker.engine)
    leases.add(cast("Group", group), HANDLE)
    return made, group, leases


def test_a_receipt_is_read_as_the_handle_that_it_was_made_of() -> None:
    assert handle_of(receipt(HANDLE)) == HANDLE


@pytest.mark.parametrize("text", ["", "1-2-3", "1-2-3-4-5", "1-2-3-x", "1-2--3-4", "1" * 200, "١-1-1-1", "a b"])
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(RocketmqRefusal):
        handle_of(text)


@pytest.mark.rule("GRP-2")
def test_a_lease_is_renewed_until_its_message_is_settled() -> None:
    made, group, leases = begun()
    for _ in range(3):
        made.after(RENEW_MS)
    assert group.times == [LEASE_MS] * 3
    assert leases.take(receipt(HANDLE)) == HANDLE._replace(generation=HANDLE.generation + 3)
    made.after(RENEW_MS)
    assert len(group.times) == 3
    assert leases.take(receipt(HANDLE)) == HANDLE


def test_a_lease_is_not_renewed_for_ever() -> None:
    made, group, leases = begun()
    for _ in range(LONGEST_MS // RENEW_MS + 5):
        made.after(RENEW_MS)
    assert len(group.times) == LONGEST_MS // RENEW_MS - 1
    assert len(leases) == 0


def test_a_lease_that_has_ended_is_forgotten() -> None:
    made, group, leases = begun()
    group.ended = True
    made.after(RENEW_MS)
    assert len(leases) == 0


def test_nothing_is_renewed_for_a_client_that_is_gone() -> None:
    made, group, leases = begun()
    leases.end()
    made.after(RENEW_MS)
    assert group.times == []


@pytest.mark.rule("FAIR-1")
def test_many_leases_are_renewed_in_pieces() -> None:
    made, group = server(), Renewals()
    leases = RenewedLeases(made.broker.engine)
    handles = [HANDLE._replace(position=position) for position in range(2 * PIECE + 1)]
    for handle in handles:
        leases.add(cast("Group", group), handle)
    made.after(RENEW_MS)
    assert len(group.times) == PIECE
    leases.take(receipt(handles[-1]))
    made.after(1)
    made.after(1)
    assert len(group.times) == 2 * PIECE
    made.after(RENEW_MS - 2)
    assert len(group.times) == 3 * PIECE
    leases.end()
    made.after(RENEW_MS)
    assert len(group.times) == 3 * PIECE
