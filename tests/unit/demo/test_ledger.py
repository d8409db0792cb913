"""The consumer's ledger notices every repetition, loss and half transaction."""

from __future__ import annotations

from collections.abc import Iterable

from escrowmq.demo.events import Resolution
from escrowmq.demo.ledger import Ledger


def deliver(ledger: Ledger, idents: Iterable[int]) -> None:
    for ident in idents:
        ledger.delivered(ident, 1000 + ident)


def commit(ledger: Ledger) -> None:
    ledger.committing()
    ledger.committed()


def test_messages_count_when_their_acknowledgement_is_committed() -> None:
    ledger = Ledger(4)
    deliver(ledger, [0, 1])
    assert (ledger.settled, ledger.waiting, ledger.missing()) == (0, 2, 4)
    commit(ledger)
    deliver(ledger, [2, 3])
    commit(ledger)
    assert (ledger.settled, ledger.waiting, ledger.missing()) == (4, 0, 0)
    assert ledger.digest == sum(range(1000, 1004))
    assert (ledger.twice, ledger.out_of_order, ledger.repeated) == (0, 0, 0)


def test_a_message_redelivered_after_its_commit_is_an_error() -> None:
    ledger = Ledger(3)
    deliver(ledger, [0, 1])
    commit(ledger)
    ledger.interrupted()
    deliver(ledger, [1, 2])
    commit(ledger)
    assert (ledger.twice, ledger.settled) == (1, 3)
    assert ledger.digest == sum(range(1000, 1003))


def test_a_repeat_or_an_older_one_on_the_same_connection_is_out_of_order() -> None:
    ledger = Ledger(3)
    deliver(ledger, [0, 2, 2, 1])
    assert ledger.out_of_order == 2


def test_acknowledgements_in_doubt_without_redelivery_were_committed() -> None:
    ledger = Ledger(3)
    deliver(ledger, [0, 1])
    ledger.committing()
    ledger.interrupted()
    deliver(ledger, [2])
    commit(ledger)
    assert ledger.resolve() == Resolution(2, 0, 0, 0)
    assert (ledger.settled, ledger.missing(), ledger.digest) == (3, 0, 3003)


def test_acknowledgements_in_doubt_with_redelivery_were_not_committed() -> None:
    ledger = Ledger(2)
    deliver(ledger, [0, 1])
    ledger.committing()
    ledger.interrupted()
    deliver(ledger, [0, 1])
    commit(ledger)
    assert ledger.resolve() == Resolution(2, 2, 0, 0)
    assert (ledger.settled, ledger.twice, ledger.repeated, ledger.digest) == (2, 0, 2, 2001)


def test_a_partly_committed_transaction_of_acknowledgements_is_detected() -> None:
    ledger = Ledger(2)
    deliver(ledger, [0, 1])
    ledger.committing()
    ledger.interrupted()
    deliver(ledger, [1])
    assert ledger.resolve() == Resolution(2, 1, 0, 0)


def test_unacknowledged_deliveries_must_be_redelivered() -> None:
    ledger = Ledger(3)
    deliver(ledger, [0, 1, 2])
    ledger.interrupted()
    deliver(ledger, [0, 2])
    commit(ledger)
    assert ledger.resolve() == Resolution(0, 0, 3, 2)
    assert ledger.missing() == 1


def test_a_resolved_transaction_is_not_resolved_again() -> None:
    ledger = Ledger(2)
    deliver(ledger, [0])
    ledger.interrupted()
    deliver(ledger, [0])
    ledger.resolve()
    assert ledger.resolve() == Resolution(0, 0, 0, 0)


def test_found_counts_all_arrived_messages() -> None:
    ledger = Ledger(6)
    deliver(ledger, [1, 2])
    commit(ledger)
    deliver(ledger, [3])
    assert (ledger.found(0, 3), ledger.found(3, 3), ledger.found(4, 2)) == (2, 1, 0)
