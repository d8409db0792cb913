"""The fourteen rows of the resume table, one by one (section 2.6.13)."""

from __future__ import annotations

from itertools import product

import pytest

from escrowmq.wire.amqp10.codec.states import (
    Accepted,
    DeliveryState,
    Modified,
    Received,
    Rejected,
    Released,
    TransactionalState,
)
from escrowmq.wire.amqp10.resume import (
    ROWS,
    DeliveryPlan,
    Knowledge,
    ReceiverAction,
    SenderAction,
    resumptions,
    reverted,
    row_of,
    settled_by_sender,
)

ABSENT = "absent"
TAG = b"t"
State = DeliveryState | str | None

# As printed in the specification: row, the sender's state, the receiver's state, the sender's action.
TABLE: list[tuple[int, State, State, SenderAction, ReceiverAction]] = [
    (1, None, ABSENT, SenderAction.RESEND, ReceiverAction.TAKE),
    (2, None, Received(1, 7), SenderAction.CONTINUE, ReceiverAction.APPEND),
    (3, None, Accepted(), SenderAction.ADOPT, ReceiverAction.FORGET),
    (4, None, None, SenderAction.WHOLE, ReceiverAction.TAKE),
    (5, Received(1, 0), ABSENT, SenderAction.RESEND_OR_SETTLE, ReceiverAction.TAKE),
    (6, Received(1, 7), Received(1, 7), SenderAction.CONTINUE, ReceiverAction.APPEND),
    (6, Received(1, 7), Received(2, 0), SenderAction.CONTINUE, ReceiverAction.APPEND),
    (7, Received(1, 8), Received(1, 7), SenderAction.ABORT_AND_RESEND, ReceiverAction.FORGET_AND_TAKE),
    (7, Received(2, 0), Received(1, 7), SenderAction.ABORT_AND_RESEND, ReceiverAction.FORGET_AND_TAKE),
    (8, Received(1, 0), Released(), SenderAction.ADOPT, ReceiverAction.FORGET),
    (9, Received(1, 0), None, SenderAction.ABORT_AND_RESEND, ReceiverAction.FORGET_AND_TAKE),
    (10, Accepted(), ABSENT, SenderAction.SETTLE, ReceiverAction.NOTHING),
    (11, Accepted(), Received(1, 0), SenderAction.ABORT, ReceiverAction.FORGET),
    (12, Rejected(), Rejected(), SenderAction.AGREE, ReceiverAction.FORGET),
    (13, Accepted(), Rejected(), SenderAction.INSIST, ReceiverAction.APPLY),
    (13, Modified(delivery_failed=True), Modified(), SenderAction.INSIST, ReceiverAction.APPLY),
    (14, Accepted(), None, SenderAction.ABORT, ReceiverAction.FORGET),
]


def unsettled(state: State) -> dict[bytes, DeliveryState | None]:
    return {} if isinstance(state, str) else {TAG: state}


@pytest.mark.rule("SET-11")
@pytest.mark.parametrize(("number", "sender", "receiver", "action", "answer"), TABLE)
def test_each_row(number: int, sender: State, receiver: State, action: SenderAction, answer: ReceiverAction) -> None:
    row = row_of(unsettled(sender), unsettled(receiver), TAG)
    assert (row.number, row.action, row.answer) == (number, action, answer)


def test_the_rows_are_numbered_as_in_the_specification() -> None:
    assert [row.number for row in ROWS] == list(range(1, 15))


def test_every_pair_of_states_has_a_row() -> None:
    states: dict[Knowledge, list[State]] = {
        Knowledge.ABSENT: [ABSENT],
        Knowledge.NULL: [None],
        Knowledge.RECEIVED: [Received(0, 0), Received(9, 9)],
        Knowledge.TERMINAL: [Accepted(), Released()],
    }
    for ours, theirs in product(Knowledge, Knowledge):
        if ours is Knowledge.ABSENT:
            continue
        for sender, receiver in product(states[ours], states[theirs]):
            row = row_of(unsettled(sender), unsettled(receiver), TAG)
            assert (row.sender, row.receiver) == (ours, theirs)


@pytest.mark.rule("SET-11")
@pytest.mark.parametrize(("number", "sender", "receiver", "action", "answer"), TABLE)
def test_nothing_is_concluded_from_an_absence_in_an_incomplete_map(
    number: int, sender: State, receiver: State, action: SenderAction, answer: ReceiverAction
) -> None:
    found = resumptions(unsettled(sender), unsettled(receiver), receiver_complete=False)
    if receiver == ABSENT:
        assert found == {TAG: DeliveryPlan(0, SenderAction.WAIT, ReceiverAction.NOTHING)}
    else:
        assert found == {TAG: DeliveryPlan(number, action, answer, unsettled(receiver)[TAG])}


def test_resumptions_are_in_the_order_of_the_senders_map() -> None:
    sender: dict[bytes, DeliveryState | None] = {b"2": None, b"1": Accepted(), b"3": None}
    found = resumptions(sender, {b"3": Accepted(), b"other": None})
    assert [(tag, each.row) for tag, each in found.items()] == [(b"2", 1), (b"1", 10), (b"3", 3)]
    assert found[b"3"].state == Accepted()


def test_each_delivery_of_many_has_the_plan_that_it_has_alone() -> None:
    shared = Accepted()
    states: list[State] = [ABSENT, None, shared, shared, Released(), Received(0, 0), TransactionalState(b"t", shared)]
    sender: dict[bytes, DeliveryState | None] = {b"%d" % i: None for i in range(len(states))}
    receiver = {tag: state for tag, state in zip(sender, states, strict=True) if not isinstance(state, str)}
    for complete in (True, False):
        found = resumptions(sender, receiver, receiver_complete=complete)
        for tag in sender:
            theirs = {tag: receiver[tag]} if tag in receiver else {}
            assert found[tag] == resumptions({tag: None}, theirs, receiver_complete=complete)[tag]


@pytest.mark.parametrize(("complete", "expected"), [(True, [b"2"]), (False, [])])
def test_the_receiver_forgets_what_the_sender_has_settled(complete: bool, expected: list[bytes]) -> None:
    assert settled_by_sender({b"1": None}, {b"1": None, b"2": Accepted()}, sender_complete=complete) == expected


def test_a_transaction_that_ended_with_its_connection_leaves_no_state() -> None:
    state = TransactionalState(b"txn", Accepted())
    assert reverted(state) is None
    assert row_of({TAG: state}, {TAG: Received(0, 0)}, TAG).number == 2
    assert row_of({TAG: None}, {TAG: state}, TAG).number == 4
    assert reverted(Accepted()) == Accepted()
