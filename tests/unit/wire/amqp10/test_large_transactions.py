"""Large transactions: committed and rolled back in pieces."""

from __future__ import annotations

import pytest

from escrowmq.core.branches import branch
from escrowmq.core.budget import TURN
from escrowmq.wire.amqp10 import large_transactions
from escrowmq.wire.amqp10.codec.composite import encode_composite
from escrowmq.wire.amqp10.codec.frames import frame
from escrowmq.wire.amqp10.codec.performatives import (
    RECEIVER,
    SENDER,
    Disposition,
    Transfer,
    encode_performative,
)
from escrowmq.wire.amqp10.codec.states import (
    Accepted,
    Rejected,
)
from escrowmq.wire.amqp10.codec.termini import Discharge
from escrowmq.wire.amqp10.errors import (
    TRANSACTION_ROLLBACK,
    TRANSACTION_TIMEOUT,
    AmqpFault,
    link_fault,
)
from tests.unit.wire.amqp10.controller import CONTROL, Controller, Q, consuming


@pytest.fixture
def site() -> Controller:
    return Controller()


class TestLargeTransactions:
    @pytest.fixture(autouse=True)
    def small(self, monkeypatch: pytest.MonkeyPatch, site: Controller) -> None:
        monkeypatch.setattr(site.server.broker.transactions, "large", 3)

    def turns(self, site: Controller, ident: bytes, *, fail: bool) -> int:
        """Discharge with a budget that ends at once in each turn. Return the number of turns."""
        engine = site.server.broker.engine
        site.number += 1
        payload = b"\x00\x53\x77" + encode_composite(Discharge(ident, fail))
        engine.requests.left, engine.requests.turn = 2, 0
        site.server.receive(
            site.client.port, frame(0, encode_performative(Transfer(CONTROL, site.number, b"d", 0, False)), payload)
        )
        turns = 1
        while site.client.port.endpoint._reader._busy:
            engine.requests.left = 0
            site.server.receive(site.client.port, b"")
            turns += 1
        engine.requests.turn = TURN
        return turns

    @pytest.mark.rule("SET-7")
    @pytest.mark.parametrize("fail", [False, True])
    def test_a_discharge_is_done_in_pieces(self, site: Controller, fail: bool) -> None:
        consuming(site, 5)
        ident = site.declare()
        for number in range(5, 10):
            site.post(ident, number, b"%d" % number)
        for number in range(5):
            site.retire(ident, number, number, Accepted(), settled=bool(number % 2))
        assert self.turns(site, ident, fail=fail) > 2
        site.server.end_turn()
        site.server.run_disk()
        site.client.collect()
        assert [answer.state for answer in self.answers(site, RECEIVER)] == [Accepted()]
        if fail:
            assert (site.unsettled(), site.contents()) == (3, [b"1", b"3"])
        else:
            assert (site.unsettled(), site.contents()) == (0, [b"5", b"6", b"7", b"8", b"9"])

    @pytest.mark.rule("FAIR-1")
    def test_deliveries_that_the_client_left_to_the_broker_are_settled_in_pieces_after_the_commit(
        self, site: Controller, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(large_transactions, "GIVEN_UP", 4)
        consuming(site, 40)
        ident = site.declare()
        for number in range(0, 40, 2):
            site.retire(ident, number, number, Accepted(), settled=False)
        transaction = site.client.port.endpoint.transactions.find(ident)
        work = large_transactions.commit(transaction)
        left: list[int] = []
        site.server.broker.engine.requests.left = 0
        for _ in work:
            left.append(len(transaction.enlisted))
            site.server.broker.engine.requests.left = 0
        assert left[-5:] == [16, 12, 8, 4, 0]
        assert not transaction.enlisted
        site.server.end_turn()
        site.server.run_disk()
        site.client.collect()
        assert [answer.first for answer in self.answers(site, SENDER)] == list(range(0, 40, 2))

    @pytest.mark.rule("FAIR-1")
    @pytest.mark.parametrize("ends", ["lost", "failed"])
    def test_a_large_transaction_that_cannot_commit_is_undone_in_pieces(
        self, site: Controller, ends: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(branch, "PIECE", 2)
        consuming(site, 9)
        ident = site.declare()
        for number in range(9):
            site.retire(ident, number, number, Accepted(), settled=bool(number % 2))
        broker = site.server.broker
        transaction = site.client.port.endpoint.transactions.find(ident)
        broker.engine.requests.turn = broker.engine.requests.left = 4
        if ends == "lost":
            site.server.lose(site.client.port)
        else:
            transaction.fail(link_fault(TRANSACTION_ROLLBACK, "too much"))
        turns = 0
        while broker.engine.left_over:
            assert sum(len(each.entries) for each in transaction.branch.settlements) >= 9 - 4 * (turns + 1)
            site.server.end_one_turn()
            turns += 1
        assert turns > 2
        site.server.end_turn()
        assert not transaction.branch.settlements
        assert not transaction.open
        if ends == "lost":
            assert broker.directory.vhost("/").queue(Q).ready == 9
        else:
            assert (site.unsettled(), len(site.contents())) == (5, 4)

    @pytest.mark.rule("SET-7")
    @pytest.mark.parametrize("fail", [False, True])
    def test_a_discharge_is_answered_when_the_transaction_is_undone(self, site: Controller, fail: bool) -> None:
        consuming(site, 9)
        ident = site.declare()
        for number in range(9):
            site.retire(ident, number, number, Accepted(), settled=False)
        transaction = site.client.port.endpoint.transactions.find(ident)
        requests = site.server.broker.engine.requests
        requests.turn = requests.left = 4
        transaction.fail(link_fault(TRANSACTION_ROLLBACK, "too much"))
        payload = b"\x00\x53\x77" + encode_composite(Discharge(ident, fail))
        transfer = encode_performative(Transfer(CONTROL, 2000, b"d", 0, False))
        site.server.receive(site.client.port, frame(0, transfer, payload))
        while transaction.branch.settlements:
            site.client.collect()
            assert not self.answers(site, RECEIVER)
            site.server.end_one_turn()
        for _ in range(3):
            site.server.end_one_turn()
        site.server.run_disk()
        site.client.collect()
        (answer,) = self.answers(site, RECEIVER)
        assert isinstance(answer.state, Accepted if fail else Rejected)
        assert site.unsettled() == 9

    def answers(self, site: Controller, role: bool) -> list[Disposition]:
        found = [each.performative for each in site.client.inbox if isinstance(each.performative, Disposition)]
        return [each for each in found if each.role == role]

    @pytest.mark.rule("SET-7")
    def test_a_commit_that_is_written_is_completed_without_its_client(self, site: Controller) -> None:
        consuming(site, 5)
        ident = site.declare()
        for number in range(5, 10):
            site.post(ident, number, b"%d" % number, durable=True)
        site.retire(ident, 0, 4, Accepted(), settled=False)
        transaction = site.client.port.endpoint.transactions.find(ident)
        work = large_transactions.commit(transaction)
        while not transaction.lsn:
            site.server.broker.engine.requests.left = 0
            next(work)
        site.server.lose(site.client.port)
        site.server.end_turn()
        while site.server.broker.engine.turn.unfinished:
            site.server.end_turn()
        site.server.run_disk()
        assert (site.unsettled(), site.contents()) == (0, [b"5", b"6", b"7", b"8", b"9"])

    @pytest.mark.rule("SET-7")
    def test_a_commit_that_is_not_written_is_rolled_back_without_its_client(self, site: Controller) -> None:
        consuming(site, 5)
        ident = site.declare()
        site.retire(ident, 0, 4, Accepted(), settled=False)
        site.server.broker.engine.requests.left = 0
        next(large_transactions.commit(site.client.port.endpoint.transactions.find(ident)))
        site.server.lose(site.client.port)
        site.server.end_turn()
        assert (site.unsettled(), len(site.contents())) == (0, 5)

    def test_a_transaction_that_expires_during_its_commit_is_rolled_back(self, site: Controller) -> None:
        ident = site.declare()
        for number in range(5):
            site.post(ident, number)
        transaction = site.client.port.endpoint.transactions.find(ident)
        work = large_transactions.commit(transaction)
        site.server.broker.engine.requests.left = 0
        next(work)
        transaction.fail(link_fault(TRANSACTION_TIMEOUT, "too old"))
        site.server.end_one_turn()
        with pytest.raises(AmqpFault, match="too old"):
            next(work)
        assert site.contents() == []
