"""The receiving end of a link: credit, messages in several frames, settling, and resuming."""

from __future__ import annotations

import pytest

from escrowmq.amqp10.errors import DeliveryLost
from escrowmq.amqp10.nodes import DURABLE, LinkOptions
from escrowmq.wire.amqp10.codec.performatives import RECEIVER, SENDER, Attach, Disposition, Flow, Transfer
from escrowmq.wire.amqp10.codec.states import Accepted, Modified, Rejected, Released
from tests.harness.amqp10_peer import BODY, connected, receiving, reconnected

A = Accepted()


def test_credit_is_granted_anew_when_half_of_it_is_used() -> None:
    _, peer, session = connected()
    link = receiving(peer, session, window=4)
    assert peer.last(Flow).link_credit == 4
    for number in range(4):
        peer.deliver(link, number)
    flows = len(peer.all(Flow))
    assert link.credit == 0
    first = link.take()
    assert first is not None
    assert len(peer.all(Flow)) == flows
    link.take_many(2)
    assert len(peer.all(Flow)) == flows + 1
    assert (peer.last(Flow).link_credit, peer.last(Flow).delivery_count) == (3, 4)


def test_a_message_in_several_frames_is_joined() -> None:
    _, peer, session = connected()
    link = receiving(peer, session)
    peer.deliver(link, 0, BODY[:5], more=True)
    peer.send(Transfer(link.handle, more=True), BODY[5:6])
    assert not link.arrived
    peer.send(Transfer(link.handle), BODY[6:])
    delivery = link.take()
    assert delivery is not None
    assert delivery.body == b"body"


def test_an_aborted_message_never_arrives() -> None:
    _, peer, session = connected()
    link = receiving(peer, session)
    peer.deliver(link, 0, BODY[:5], more=True)
    peer.send(Transfer(link.handle, aborted=True))
    peer.deliver(link, 1)
    assert [delivery.tag for delivery in link.take_many(10)] == [b"\x01"]


def test_settled_is_sticky() -> None:
    _, peer, session = connected()
    link = receiving(peer, session)
    peer.deliver(link, 0, BODY[:5], more=True, settled=True)
    peer.send(Transfer(link.handle), BODY[5:])
    assert link.arrived[0].settled
    assert not link.unsettled


def test_accepting_in_order_makes_one_range() -> None:
    endpoint, peer, session = connected()
    link = receiving(peer, session)
    for number in range(4):
        peer.deliver(link, number)
    first, second, third, fourth = link.take_many(10)
    link.settle([first, second], A)
    link.settle([third], A)
    fourth.reject("app:bad", "cannot read it")
    assert endpoint.dirty
    accepted, rejected = peer.all(Disposition)
    assert (accepted.role, accepted.first, accepted.last, accepted.settled) == (RECEIVER, 0, 2, True)
    assert isinstance(rejected.state, Rejected)
    assert (rejected.first, str(rejected.state.error and rejected.state.error.condition)) == (3, "app:bad")
    assert not link.unsettled


def test_release_and_modify_say_so() -> None:
    _, peer, session = connected()
    link = receiving(peer, session)
    for number in range(2):
        peer.deliver(link, number)
    first, second = link.take_many(10)
    first.release()
    second.modify(elsewhere=True, annotations={"x-reason": "later"})
    released, modified = peer.all(Disposition)
    assert isinstance(released.state, Released)
    assert modified.state == Modified(True, True, {"x-reason": "later"})


def test_in_mode_second_the_delivery_waits_for_the_sender_to_settle() -> None:
    _, peer, session = connected()
    link = receiving(peer, session, mode="second")
    peer.deliver(link, 0)
    delivery = link.take()
    assert delivery is not None
    delivery.accept()
    assert not peer.last(Disposition).settled
    before = delivery.settled
    peer.settle(SENDER, 0, settled=True, state=A)
    assert (before, delivery.settled) == (False, True)
    assert not link.unsettled


def test_a_drain_ends_with_the_senders_flow() -> None:
    _, peer, session = connected()
    link = receiving(peer, session, window=0)
    link.grant(5, drain=True)
    assert peer.last(Flow).drain
    peer.deliver(link, 0)
    before = link.draining
    peer.credit(link, 0, delivery_count=5)
    assert (before, link.draining) == (True, False)
    assert link.credit == 0


def test_without_a_durable_terminus_a_lost_connection_loses_its_deliveries() -> None:
    _, peer, session = connected()
    link = receiving(peer, session)
    peer.deliver(link, 0)
    peer.deliver(link, 1)
    taken = link.take()
    assert taken is not None
    reconnected(peer)
    assert not link.arrived
    with pytest.raises(DeliveryLost, match="the broker delivers it again"):
        taken.accept()


@pytest.mark.rule("SET-11")
def test_a_delivery_in_hand_is_resumed_without_its_payload_counting_twice() -> None:
    _, peer, session = connected()
    link = receiving(peer, session, mode="second", terminus=DURABLE)
    peer.deliver(link, 0)
    delivery = link.take()
    assert delivery is not None
    again = reconnected(peer)
    assert again.last(Attach).unsettled == {b"\x00": None}
    again.attach(link, unsettled={b"\x00": None})
    again.send(Transfer(link.handle, delivery_id=7, delivery_tag=b"\x00", resume=True), BODY)
    assert not link.arrived
    delivery.accept()
    assert (again.last(Disposition).first, again.last(Disposition).settled) == (7, False)


@pytest.mark.rule("SET-11")
def test_an_outcome_that_was_given_before_the_resume_is_sent_with_it() -> None:
    _, peer, session = connected()
    link = receiving(peer, session, mode="second", terminus=DURABLE)
    peer.deliver(link, 0)
    delivery = link.take()
    assert delivery is not None
    again = reconnected(peer)
    delivery.accept()
    again.attach(link, unsettled={b"\x00": None})
    assert not again.all(Disposition)
    again.send(Transfer(link.handle, delivery_id=7, delivery_tag=b"\x00", resume=True), BODY)
    assert again.last(Disposition).first == 7


@pytest.mark.rule("SET-11")
def test_row_3_settles_what_was_accepted_before() -> None:
    _, peer, session = connected()
    link = session.incoming_link("in", LinkOptions("q", mode="second", terminus=DURABLE, manual=True), 5)
    known = link.recover(b"t", A)
    gone = link.recover(b"u", A)
    session.attach(link)
    assert peer.last(Attach).unsettled == {b"t": A, b"u": A}
    peer.attach(link, unsettled={b"t": None})
    assert gone.settled
    assert link.forgotten == [b"u"]
    peer.send(
        Transfer(link.handle, delivery_id=0, delivery_tag=b"t", resume=True, settled=True, state=A),
    )
    assert known.settled
    assert link.forgotten == [b"u", b"t"]
    assert not link.arrived


@pytest.mark.rule("SET-11")
def test_row_13_takes_the_senders_outcome() -> None:
    _, peer, session = connected()
    link = receiving(peer, session, mode="second", terminus=DURABLE)
    peer.deliver(link, 0)
    delivery = link.take()
    assert delivery is not None
    delivery.release()
    again = reconnected(peer)
    again.attach(link, unsettled={b"\x00": A})
    again.send(Transfer(link.handle, delivery_id=0, delivery_tag=b"\x00", resume=True, state=A))
    assert delivery.state == A
    assert again.last(Disposition).settled


def test_a_resumed_delivery_that_is_unknown_is_ignored() -> None:
    _, peer, session = connected()
    link = receiving(peer, session, window=2, mode="second", terminus=DURABLE)
    peer.deliver(link, 0, resume=True)
    assert not link.arrived
    assert not link.unsettled
    peer.deliver(link, 1)
    assert link.arrived[0].tag == b"\x01"


def test_a_delivery_that_the_broker_no_longer_holds_is_lost() -> None:
    _, peer, session = connected()
    link = receiving(peer, session, mode="second", terminus=DURABLE)
    peer.deliver(link, 0)
    delivery = link.take()
    assert delivery is not None
    reconnected(peer).attach(link, unsettled={})
    with pytest.raises(DeliveryLost, match="no longer holds"):
        delivery.accept()
