"""Transactions against a scripted coordinator: declare, post, retire, acquire, discharge, and lost connections."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.amqp10.endpoint.transactions import Transaction, TransactionState, coordinator_link
from escrowmq.amqp10.errors import DeliveryLost, TransactionFailed, TransactionInDoubt
from escrowmq.wire.amqp10.codec.composite import resolve
from escrowmq.wire.amqp10.codec.encoding import decode
from escrowmq.wire.amqp10.codec.performatives import RECEIVER, Disposition, Error, Flow, Transfer
from escrowmq.wire.amqp10.codec.states import Accepted, Declared, Rejected, TransactionalState
from escrowmq.wire.amqp10.codec.termini import Coordinator, Discharge
from escrowmq.wire.amqp10.codec.types import Symbol
from tests.harness.amqp10_peer import BODY, Peer, connected, receiving, reconnected, sending

A = Accepted()
ROLLED_BACK = Error(condition=Symbol("amqp:transaction:rollback"), description="a queue is full")


def begun() -> tuple[Peer, Transaction]:
    """Return a transaction that is active; the declare has the delivery-id 0."""
    _, peer, session = connected()
    link = coordinator_link(session, "txn")
    session.attach(link)
    peer.attach(link)
    assert isinstance(link.remote.target, Coordinator)  # type: ignore[union-attr]
    transaction = Transaction(link)
    before = transaction.declared
    peer.read()
    peer.settle(RECEIVER, 0, settled=True, state=Declared(txn_id=b"7"))
    assert (before, transaction.declared) == (False, True)
    return peer, transaction


def discharge(peer: Peer, transaction: Transaction, *, fail: bool = False) -> int:
    """Ask for the end of the transaction, and return the delivery-id of the request."""
    transaction.discharge(fail=fail)
    request, payload = [each for each in (peer.read(), peer.sent)[1] if isinstance(each[0], Transfer)][-1]
    value: Any = decode(payload)[0]
    assert value.descriptor == 0x77
    assert resolve(value.value) == Discharge(b"7", fail)
    return int(request.delivery_id)


def test_posts_and_retirements_name_the_transaction() -> None:
    peer, transaction = begun()
    session = peer.endpoint._sessions[0]
    out, into = sending(peer, session), receiving(peer, session)
    post = transaction.post(out, BODY)
    out.pump()
    assert peer.last(Transfer).state == TransactionalState(b"7")
    peer.deliver(into, 0)
    into.arrived[0].accept(transaction)
    assert peer.last(Disposition).state == TransactionalState(b"7", A)
    before = transaction.answered
    peer.settle(RECEIVER, post.id, settled=True, state=TransactionalState(b"7", A))
    assert (before, transaction.answered) == (False, True)
    assert post.accepted
    number = discharge(peer, transaction)
    peer.settle(RECEIVER, number, settled=True, state=A)
    assert transaction.discharged
    assert transaction.state is TransactionState.COMMITTED


def test_a_commit_that_fails_has_the_reason() -> None:
    peer, transaction = begun()
    number = discharge(peer, transaction)
    peer.settle(RECEIVER, number, settled=True, state=Rejected(ROLLED_BACK))
    with pytest.raises(TransactionFailed, match="a queue is full") as caught:
        _ = transaction.discharged
    assert caught.value.condition == "amqp:transaction:rollback"
    assert transaction.state is TransactionState.ROLLED_BACK


def test_a_refused_declare_has_the_reason() -> None:
    peer, first = begun()
    transaction = Transaction(first._coordinator)
    peer.read()
    peer.settle(RECEIVER, 1, settled=True, state=Rejected(Error(condition=Symbol("amqp:not-implemented"))))
    with pytest.raises(TransactionFailed, match="amqp:not-implemented"):
        _ = transaction.declared


def test_a_rollback_gives_back_what_was_retired_in_mode_second() -> None:
    peer, transaction = begun()
    session = peer.endpoint._sessions[0]
    into = receiving(peer, session, mode="second")
    peer.deliver(into, 0)
    delivery = into.arrived[0]
    delivery.accept(transaction)
    number = discharge(peer, transaction, fail=True)
    peer.settle(RECEIVER, number, settled=True, state=A)
    assert transaction.discharged
    assert transaction.state is TransactionState.ROLLED_BACK
    delivery.accept()
    assert peer.last(Disposition).state == A


def test_a_rollback_returns_what_was_retired_in_mode_first() -> None:
    peer, transaction = begun()
    into = receiving(peer, peer.endpoint._sessions[0])
    peer.deliver(into, 0)
    delivery = into.arrived[0]
    delivery.accept(transaction)
    peer.settle(RECEIVER, discharge(peer, transaction, fail=True), settled=True, state=A)
    assert transaction.discharged
    with pytest.raises(DeliveryLost, match="rolled back"):
        delivery.release()


def test_acquiring_names_the_transaction_in_the_flow() -> None:
    peer, transaction = begun()
    into = receiving(peer, peer.endpoint._sessions[0], window=0)
    transaction.acquire(into, 5)
    flow = peer.last(Flow)
    assert (flow.link_credit, flow.properties) == (5, {"txn-id": b"7"})


def test_a_transaction_ends_with_its_connection() -> None:
    peer, transaction = begun()
    reconnected(peer)
    with pytest.raises(TransactionFailed, match="its connection was lost"):
        transaction.check()
    assert transaction.state is TransactionState.ROLLED_BACK


def test_a_commit_without_an_answer_is_in_doubt() -> None:
    peer, transaction = begun()
    discharge(peer, transaction)
    reconnected(peer)
    with pytest.raises(TransactionInDoubt, match="check its effects"):
        _ = transaction.discharged
    assert transaction.state is TransactionState.IN_DOUBT


def test_a_finished_transaction_takes_no_more_work() -> None:
    peer, transaction = begun()
    peer.settle(RECEIVER, discharge(peer, transaction), settled=True, state=A)
    assert transaction.discharged
    with pytest.raises(TransactionFailed, match="is committed; begin another one"):
        transaction.check()
