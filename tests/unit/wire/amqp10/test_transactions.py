"""Transactions on the wire: posts, retirements and acquisitions, committed and rolled back (part 4)."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.core.branches.branch import Limits
from escrowmq.server.relief import Relief
from escrowmq.wire.amqp10.codec.composite import encode_composite
from escrowmq.wire.amqp10.codec.frames import frame
from escrowmq.wire.amqp10.codec.performatives import (
    RECEIVER,
    SECOND,
    SENDER,
    Attach,
    Detach,
    Disposition,
    End,
    Transfer,
    encode_performative,
)
from escrowmq.wire.amqp10.codec.states import (
    Accepted,
    Modified,
    Outcome,
    Rejected,
    Released,
    TransactionalState,
)
from escrowmq.wire.amqp10.codec.termini import Discharge, Source, Target
from escrowmq.wire.amqp10.codec.types import Symbol
from escrowmq.wire.amqp10.errors import (
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    STOLEN,
    TRANSACTION_ROLLBACK,
    TRANSACTION_TIMEOUT,
    UNKNOWN_TRANSACTION,
)
from escrowmq.wire.amqp10.session import Session
from escrowmq.wire.amqp10.transfers import Transfers
from tests.unit.wire.amqp10.clients import Client, message
from tests.unit.wire.amqp10.controller import CONTROL, Controller, Q, consuming


@pytest.fixture
def site() -> Controller:
    return Controller()


class TestPosting:
    @pytest.mark.rule("SET-7")
    @pytest.mark.parametrize("settled", [False, True])
    def test_posts_are_visible_after_the_commit_in_their_order(self, site: Controller, settled: bool) -> None:
        ident = site.declare()
        for number in range(5):
            site.post(ident, number, b"%d" % number, settled=settled, durable=True)
        site.client.post(5, b"plain", settled=True, durable=True)
        assert site.contents() == [b"plain"]
        site.commit(ident)
        assert site.contents() == [b"plain", b"0", b"1", b"2", b"3", b"4"]
        assert isinstance(site.outcome(Discharge(ident, False)), Rejected), "the id is not known any more"

    @pytest.mark.rule("SET-7")
    @pytest.mark.parametrize("settled", [False, True])
    def test_posts_of_further_transactions_are_read_by_what_the_first_one_taught(
        self, site: Controller, settled: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        decoded: list[int] = []
        part = Transfers.part

        def noting(transfers: Transfers, session: Session, transfer: Transfer, *where: Any) -> Any:
            decoded.append(transfer.handle)
            return part(transfers, session, transfer, *where)

        monkeypatch.setattr(Transfers, "part", noting)
        committed: list[bytes] = []
        for number in (300, 320, 340, 360):
            ident = site.declare()
            bodies = [b"message %d" % (number + i) for i in range(20)]
            state = TransactionalState(ident)
            posts = [
                frame(
                    0, encode_performative(Transfer(0, number + i, b"%d" % i, 0, settled, state=state)), message(each)
                )
                for i, each in enumerate(bodies)
            ]
            site.client.send_bytes(b"".join(posts))
            assert site.contents() == committed
            site.client.inbox.clear()
            if number == 340:
                site.rollback(ident)
                continue
            site.commit(ident)
            committed += bodies
            assert site.contents() == committed
        assert decoded.count(0) == 1

    @pytest.mark.rule("SET-7")
    def test_the_answer_to_a_discharge_waits_for_the_sync(self, site: Controller) -> None:
        ident = site.declare()
        site.post(ident, 0, durable=True)
        payload = b"\x00\x53\x77" + encode_composite(Discharge(ident, False))
        transfer = encode_performative(Transfer(CONTROL, 1, b"d", 0, False))
        site.client.send_bytes(frame(0, transfer, payload), disk=False)
        assert site.client.idle()
        assert site.contents() == []
        site.server.run_disk()
        site.client.collect()
        assert site.client.outcome(1).state == Accepted()
        assert site.contents() == [b"x"]

    @pytest.mark.rule("SET-7")
    def test_a_rollback_drops_the_posts(self, site: Controller) -> None:
        ident = site.declare()
        site.post(ident, 0)
        site.rollback(ident)
        assert site.contents() == []

    def test_two_transactions_on_one_link_are_apart(self, site: Controller) -> None:
        one, two = site.declare(), site.declare()
        for number in range(6):
            site.post((one, two)[number % 2], number, b"%d" % number)
        site.rollback(one)
        site.commit(two)
        assert site.contents() == [b"1", b"3", b"5"]

    @pytest.mark.rule("SET-7")
    def test_one_transaction_spans_sessions(self, site: Controller) -> None:
        ident = site.declare()
        site.client.begin(1)
        site.client.sender(Q, channel=1, name="other")
        site.client.post(0, b"b", channel=1, state=TransactionalState(ident))
        assert site.client.outcome(0).state == TransactionalState(ident, Accepted())
        site.post(ident, 0, b"a")
        site.commit(ident)
        assert site.contents() == [b"b", b"a"]

    def test_the_transaction_of_another_connection_is_unknown(self, site: Controller) -> None:
        ident = site.declare()
        other = Client(site.server, container="other")
        other.sender(Q)
        other.post(0, state=TransactionalState(ident))
        other.detached(0, UNKNOWN_TRANSACTION)

    def test_an_unroutable_post_is_released_within_the_transaction(self, site: Controller) -> None:
        site.client.sender("/exchanges/amq.direct/nowhere", 3)
        ident = site.declare()
        site.client.post(0, handle=3, state=TransactionalState(ident))
        assert site.client.outcome(0).state == TransactionalState(ident, Released())
        site.commit(ident)

    @pytest.mark.rule("SET-7")
    def test_a_settled_post_that_fails_prevents_the_commit(self, site: Controller) -> None:
        site.client.sender("/exchanges/amq.direct/nowhere", 3)
        ident = site.declare()
        site.post(ident, 0)
        site.client.post(1, handle=3, settled=True, state=TransactionalState(ident))
        assert "no queue" in site.refuses(ident, TRANSACTION_ROLLBACK)
        assert site.contents() == []

    def test_a_post_that_costs_the_link_prevents_the_commit(self, site: Controller) -> None:
        site.client.sender(None, 3)
        ident = site.declare()
        site.client.send(0, Transfer(3, 0, b"0", 0, True, state=TransactionalState(ident)), payload=message(b"x"))
        site.client.expect(Detach)
        assert "refused" in site.refuses(ident, TRANSACTION_ROLLBACK)

    def test_a_post_of_several_transfers_belongs_to_the_transaction(self, site: Controller) -> None:
        ident, other = site.declare(), site.declare()
        payload, state = message(b"abcdef"), TransactionalState(ident)
        site.client.send(0, Transfer(0, 0, b"0", 0, False, more=True, state=state), payload=payload[:4])
        site.client.send(0, Transfer(0), payload=payload[4:])
        assert site.client.outcome(0).state == TransactionalState(ident, Accepted())
        site.commit(ident)
        assert site.contents() == [b"abcdef"]
        state = TransactionalState(other)
        site.client.send(0, Transfer(0, 1, b"1", 0, False, more=True), payload=payload[:4])
        site.client.send(0, Transfer(0, state=state), payload=payload[4:])
        site.client.detached(0, NOT_ALLOWED)

    def test_a_discharge_before_the_end_of_a_post_costs_the_control_link(self, site: Controller) -> None:
        ident = site.declare()
        site.client.send(
            0, Transfer(0, 0, b"0", 0, False, more=True, state=TransactionalState(ident)), payload=message(b"x")[:4]
        )
        site.command(Discharge(ident, False))
        site.client.detached(CONTROL, TRANSACTION_ROLLBACK)
        assert site.contents() == []

    @pytest.mark.rule("TX-13")
    def test_a_transaction_beyond_its_limits_cannot_commit(self) -> None:
        site = Controller(transaction=Limits(operations=2))
        ident = site.declare()
        site.post(ident, 0)
        site.post(ident, 1)
        site.client.post(2, state=TransactionalState(ident))
        state = site.client.outcome(2).state
        assert isinstance(state, TransactionalState)
        assert isinstance(state.outcome, Rejected)
        assert "operations" in site.refuses(ident, TRANSACTION_ROLLBACK)
        assert site.contents() == []

    @pytest.mark.rule("TX-13")
    def test_a_transaction_that_lasts_too_long_is_rolled_back(self) -> None:
        site = Controller(transaction=Limits(age=1000))
        ident = site.declare()
        site.post(ident, 0)
        site.server.broker.engine.now += 1001
        site.server.broker.engine.run_deadlines()
        assert "1 s" in site.refuses(ident, TRANSACTION_TIMEOUT)
        assert site.contents() == []

    @pytest.mark.rule("FAIR-3")
    def test_a_transaction_that_holds_much_while_memory_is_short_is_rolled_back(self, site: Controller) -> None:
        ident = site.declare()
        site.post(ident, 0)
        engine = site.server.broker.engine
        relief = Relief(site.server.broker, limit_bytes=20, grace_ms=1000)
        relief.look()
        engine.now += 1000
        relief.look()
        assert not [holder for holder in engine.holders if getattr(holder, "publications", None)]
        assert "memory is short" in site.refuses(ident, TRANSACTION_ROLLBACK)
        assert site.contents() == []

    @pytest.mark.rule("FAIR-3")
    def test_a_transaction_that_is_committed_holds_nothing(self, site: Controller) -> None:
        ident = site.declare()
        site.post(ident, 0)
        before = len(site.server.broker.engine.holders)
        site.command(Discharge(ident, False))
        assert len(site.server.broker.engine.holders) == before - 2

    def test_posts_in_mode_second_are_settled_by_the_client(self, site: Controller) -> None:
        site.client.sender(Q, 3, rcv_settle_mode=SECOND)
        ident = site.declare()
        site.client.post(0, handle=3, state=TransactionalState(ident))
        answer = site.client.outcome(0)
        assert (answer.settled, answer.state) == (False, TransactionalState(ident, Accepted()))
        site.commit(ident)
        site.client.send(0, Disposition(role=SENDER, first=0, settled=True))
        assert site.contents() == [b"x"]
        site.client.post(0, handle=3)
        assert site.client.outcome(0).state == Accepted(), "the tag is free"


class TestRetirement:
    @pytest.mark.rule("SET-7")
    @pytest.mark.parametrize("settled", [False, True])
    @pytest.mark.parametrize(
        ("outcome", "left"),
        [
            (Accepted(), []),
            (Rejected(), []),
            (Released(), [b"0", b"1"]),
            (Modified(True), [b"0", b"1"]),
            (Modified(False, message_annotations={Symbol("x-a"): 1}), [b"0", b"1"]),
        ],
    )
    def test_outcomes_take_effect_at_the_commit(
        self, site: Controller, outcome: Outcome, left: list[bytes], settled: bool
    ) -> None:
        consuming(site, 2)
        ident = site.declare()
        site.retire(ident, 0, 1, outcome, settled=settled)
        assert (site.unsettled(), site.contents()) == (2, [])
        number = site.command(Discharge(ident, False))
        answers = [site.client.expect(Disposition) for _ in range(1 if settled else 2)]
        assert {(answer.role, answer.first, answer.last, answer.settled) for answer in answers} == (
            {(RECEIVER, number, None, True)} | (set() if settled else {(SENDER, 0, 1, True)})
        )
        assert (site.unsettled(), site.contents()) == (0, left)

    def test_single_retirements_are_kept_together(self, site: Controller) -> None:
        consuming(site, 6)
        ident = site.declare()
        transaction = site.client.port.endpoint.transactions.find(ident)
        for number in range(4):
            site.retire(ident, number, number, Accepted())
        site.retire(ident, 4, 4, Released())
        site.retire(ident, 5, 5, Released(), settled=False)
        assert [(some.first, some.last) for some in transaction.enlisted] == [(0, 3), (4, 4), (5, 5)]
        (terminus,) = [each for key, each in site.server.broker.termini.by_key.items() if key.link == "r1"]
        assert len(terminus.deliveries._enlisted) == 1
        site.rollback(ident)
        assert (site.unsettled(), site.contents()) == (1, [b"0", b"1", b"2", b"3", b"4"])

    @pytest.mark.rule("SET-7")
    def test_after_a_rollback_deliveries_stay_unsettled_unless_the_client_settled_them(self, site: Controller) -> None:
        consuming(site, 4)
        ident = site.declare()
        site.retire(ident, 0, 1, Accepted(), settled=False)
        site.retire(ident, 2, 3, Accepted(), settled=True)
        site.rollback(ident)
        assert (site.unsettled(), site.contents()) == (2, [b"2", b"3"])
        site.client.send(0, Disposition(role=RECEIVER, first=0, last=1, settled=True, state=Accepted()))
        assert (site.unsettled(), site.contents()) == (0, [b"2", b"3"])

    def test_the_default_outcome_is_applied_to_settled_deliveries(self, site: Controller) -> None:
        consuming(site, 1, default_outcome=Released())
        ident = site.declare()
        site.retire(ident, 0, 0, Accepted())
        site.rollback(ident)
        queue = site.server.broker.directory.vhost("/").queue(Q)
        assert (queue.unsettled, site.contents()) == (0, [b"0"])
        assert [marks.failures for marks in queue.marks.values()] == [0]

    def test_a_delivery_is_settled_later_in_the_same_transaction(self, site: Controller) -> None:
        consuming(site, 1)
        ident = site.declare()
        site.retire(ident, 0, 0, Accepted(), settled=False)
        site.retire(ident, 0, 0, Accepted(), settled=True)
        site.rollback(ident)
        assert (site.unsettled(), site.contents()) == (0, [b"0"])

    @pytest.mark.parametrize("together", [True, False])
    def test_a_client_may_settle_some_of_the_deliveries_that_it_retired(self, site: Controller, together: bool) -> None:
        consuming(site, 3)
        ident = site.declare()
        if together:
            site.retire(ident, 0, 2, Accepted(), settled=False)
        else:
            for number in range(3):
                site.retire(ident, number, number, Accepted(), settled=False)
        site.retire(ident, 1, 1, Accepted(), settled=True)
        site.rollback(ident)
        assert (site.unsettled(), site.contents()) == (2, [b"1"])
        for number in (0, 2):
            site.client.send(0, Disposition(role=RECEIVER, first=number, settled=True, state=Accepted()))
        assert (site.unsettled(), site.contents()) == (0, [b"1"])

    @pytest.mark.parametrize("inside", [True, False])
    def test_a_delivery_in_a_transaction_cannot_be_settled_elsewhere(self, site: Controller, inside: bool) -> None:
        consuming(site, 2)
        one, two = site.declare(), site.declare()
        site.retire(one, 0, 0, Accepted(), settled=False)
        if inside:
            site.retire(two, 0, 1, Accepted())
        else:
            site.client.send(0, Disposition(role=RECEIVER, first=0, last=1, settled=True, state=Accepted()))
        site.client.detached(CONTROL, TRANSACTION_ROLLBACK)
        assert site.unsettled() == 2

    def test_an_unknown_transaction_costs_the_consumer_link(self, site: Controller) -> None:
        consuming(site, 1)
        site.retire(b"?", 0, 0, Accepted())
        site.client.detached(1, UNKNOWN_TRANSACTION)
        assert site.contents() == [b"0"]

    @pytest.mark.rule("SET-7")
    def test_settled_retirements_commit_after_their_link_is_gone(self, site: Controller) -> None:
        consuming(site, 2)
        ident = site.declare()
        site.retire(ident, 0, 0, Accepted(), settled=True)
        site.client.send(0, Detach(handle=1, closed=True))
        site.client.expect(Detach)
        site.commit(ident)
        assert (site.unsettled(), site.contents()) == (0, [b"1"])

    def test_a_transaction_that_has_failed_returns_what_the_client_settles(self) -> None:
        site = Controller(transaction=Limits(operations=1))
        consuming(site, 3)
        ident = site.declare()
        site.retire(ident, 0, 1, Accepted())
        site.retire(ident, 2, 2, Accepted())
        assert (site.unsettled(), site.contents()) == (0, [b"0", b"1", b"2"])
        site.refuses(ident, TRANSACTION_ROLLBACK)


class TestAcquisition:
    def acquiring(self, site: Controller, count: int) -> bytes:
        for number in range(count):
            site.client.post(number, b"%d" % number, settled=True)
        site.client.receiver(Q)
        ident = site.declare()
        site.client.flow(1, count, properties={Symbol("txn-id"): ident})
        for number in range(count):
            found = site.client.expect(Transfer)
            assert (found.delivery_id, found.state) == (number, TransactionalState(ident))
        return ident

    @pytest.mark.rule("SET-7")
    def test_a_rollback_returns_acquired_deliveries(self, site: Controller) -> None:
        ident = self.acquiring(site, 2)
        number = site.command(Discharge(ident, True))
        answers = [site.client.expect(Disposition) for _ in range(2)]
        assert {(answer.role, answer.first, answer.settled) for answer in answers} == {
            (SENDER, 0, True),
            (RECEIVER, number, True),
        }
        assert (site.unsettled(), site.contents()) == (0, [b"0", b"1"])

    @pytest.mark.rule("SET-7")
    def test_after_a_commit_they_stay_acquired_unless_they_were_retired(self, site: Controller) -> None:
        ident = self.acquiring(site, 2)
        site.retire(ident, 0, 0, Accepted())
        site.commit(ident)
        assert (site.unsettled(), site.contents()) == (1, [])
        site.client.send(0, Disposition(role=RECEIVER, first=1, settled=True, state=Accepted()))
        assert site.unsettled() == 0

    def test_later_deliveries_are_not_part_of_it(self, site: Controller) -> None:
        ident = self.acquiring(site, 1)
        site.commit(ident)
        site.client.post(1, settled=True)
        site.client.flow(1, 1, delivery_count=1)
        assert site.client.expect(Transfer).state is None

    def test_an_unknown_transaction_costs_the_link(self, site: Controller) -> None:
        site.client.receiver(Q)
        site.client.flow(1, 1, properties={Symbol("txn-id"): b"?"})
        site.client.detached(1, UNKNOWN_TRANSACTION)

    def test_a_link_that_delivers_settled_messages_cannot_acquire(self, site: Controller) -> None:
        ident = site.declare()
        site.client.receiver(Q, settled=True)
        site.client.flow(1, 1, properties={Symbol("txn-id"): ident})
        site.client.detached(1, NOT_IMPLEMENTED)


class TestExactlyOnce:
    """Posts and retirements on links whose termini keep unsettled deliveries."""

    def sender(self, client: Client) -> None:
        target = Target(Q, durable=2, expiry_policy=Symbol("never"))
        client.sender(None, 3, name="x", target=target, rcv_settle_mode=SECOND)

    @pytest.mark.rule("SET-8")
    @pytest.mark.parametrize("commits", [True, False])
    def test_the_tag_of_a_post_arrives_with_the_commit(self, site: Controller, commits: bool) -> None:
        self.sender(site.client)
        (terminus,) = [each for key, each in site.server.broker.termini.by_key.items() if key.link == "x"]
        ident = site.declare()
        site.post(ident, 0, handle=3, durable=True)
        if commits:
            site.commit(ident)
            assert site.contents() == [b"x"]
        else:
            site.rollback(ident)
            assert site.contents() == []
        assert terminus.arrivals.count == commits
        site.client.send(0, Disposition(role=SENDER, first=0, settled=True))
        assert terminus.arrivals.count == 0
        site.client.post(0, handle=3, durable=True)
        assert site.client.outcome(0).state == Accepted(), "the tag is free"


class TestAfterTheEnd:
    """Links and sessions that end before their transaction."""

    def test_deliveries_are_retired_after_their_link_was_detached(self, site: Controller) -> None:
        consuming(site, 2)
        ident = site.declare()
        site.client.send(0, Detach(handle=1))
        site.client.expect(Detach)
        site.retire(ident, 0, 0, Accepted())
        site.commit(ident)
        assert site.unsettled() == 1

    def test_nothing_is_retired_after_another_link_has_taken_the_terminus(self, site: Controller) -> None:
        consuming(site, 1)
        ident = site.declare()
        site.client.begin(1)
        other = Attach("r1", 1, RECEIVER, source=Source(Q), target=Target(), unsettled={})
        site.client.send(1, other)
        site.client.detached(1, STOLEN)
        site.client.expect(Attach)
        site.retire(ident, 0, 0, Accepted())
        site.commit(ident)
        assert site.unsettled() == 1

    def test_a_commit_sends_nothing_on_a_session_that_has_ended(self, site: Controller) -> None:
        site.client.begin(1)
        site.client.post(0, settled=True)
        site.client.receiver(Q, channel=1, credit=1)
        assert site.client.deliveries() == [(0, b"x")]
        ident = site.declare()
        state = TransactionalState(ident, Accepted())
        site.client.send(1, Disposition(role=RECEIVER, first=0, settled=False, state=state))
        site.client.send(1, End())
        site.client.expect(End)
        site.commit(ident)
        assert site.client.idle()
        assert site.unsettled() == 0

    def test_the_end_of_a_link_leaves_the_deliveries_of_others_alone(self, site: Controller) -> None:
        consuming(site, 2)
        site.client.post(2, settled=True)
        site.client.receiver(Q, 2, credit=1)
        assert len(site.client.deliveries()) == 1
        ident = site.declare()
        site.retire(ident, 2, 2, Accepted(), settled=False)
        site.client.send(0, Detach(handle=2, closed=True))
        site.client.expect(Detach)
        site.command(Discharge(ident, False))
        site.client.inbox.clear()
        for number in (0, 1):
            site.client.send(0, Disposition(role=RECEIVER, first=number, settled=True, state=Accepted()))
        assert site.unsettled() == 0
