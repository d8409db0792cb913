"""The sending end of a link: credit, windows, frames, outcomes, and every row of resuming."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.amqp10.endpoint.deliveries import OutgoingDelivery
from escrowmq.amqp10.errors import MessageRejected, UsageError
from escrowmq.amqp10.nodes import DURABLE, LinkOptions
from escrowmq.wire.amqp10.codec.performatives import (
    RECEIVER,
    SENDER,
    Attach,
    Detach,
    Disposition,
    Error,
    Flow,
    Transfer,
)
from escrowmq.wire.amqp10.codec.states import Accepted, Received, Rejected, Released
from escrowmq.wire.amqp10.codec.types import Symbol
from tests.harness.amqp10_peer import BODY, Peer, connected, reconnected, sending

A, R = Accepted(), Released()


def test_messages_wait_for_credit() -> None:
    _, peer, session = connected()
    link = sending(peer, session, credit=1)
    first, second = link.send(BODY), link.send(BODY)
    link.pump()
    assert [transfer.delivery_id for transfer in peer.all(Transfer)] == [0]
    peer.credit(link, 1, seen=1)
    assert [transfer.delivery_tag for transfer in peer.all(Transfer)] == [first.tag, second.tag]
    assert peer.payloads() == [BODY, BODY]


def test_messages_wait_for_the_window() -> None:
    _, peer, session = connected()
    link = sending(peer, session, credit=0)
    peer.credit(link, 10, incoming_window=2)
    for _ in range(3):
        link.send(BODY)
    link.pump()
    assert len(peer.all(Transfer)) == 2
    peer.send(Flow(next_incoming_id=2, incoming_window=5, next_outgoing_id=0, outgoing_window=1))
    assert len(peer.all(Transfer)) == 3


def test_a_large_message_is_cut_into_frames_that_the_peer_accepts() -> None:
    _, peer, session = connected(max_frame_size=512)
    link = sending(peer, session)
    payload = bytes(range(256)) * 8
    link.send(payload)
    link.pump()
    assert b"".join(peer.payloads()) == payload
    transfers = peer.all(Transfer)
    assert [transfer.more for transfer in transfers] == [True] * (len(transfers) - 1) + [False]
    assert all(len(part) < 512 for part in peer.payloads())


def test_a_large_message_continues_when_the_window_opens() -> None:
    _, peer, session = connected(max_frame_size=512)
    link = sending(peer, session, credit=0)
    peer.credit(link, 5, incoming_window=2)
    link.send(b"x" * 1500)
    link.pump()
    assert len(peer.all(Transfer)) == 2
    peer.credit(link, 4, seen=2, delivery_count=1)
    assert b"".join(peer.payloads()) == b"x" * 1500


def test_outcomes_of_a_range_settle_its_deliveries() -> None:
    _, peer, session = connected()
    link = sending(peer, session)
    deliveries = [link.send(BODY) for _ in range(5)]
    link.pump()
    peer.read()
    peer.settle(RECEIVER, 1, 3, settled=True, state=A)
    assert [delivery.settled for delivery in deliveries] == [False, True, True, True, False]
    assert deliveries[1].accepted
    assert [delivery.tag for delivery in link.unsettled.values()] == [deliveries[0].tag, deliveries[4].tag]


def test_a_huge_range_concerns_only_known_deliveries() -> None:
    _, peer, session = connected()
    link = sending(peer, session)
    delivery = link.send(BODY)
    link.pump()
    peer.settle(RECEIVER, 0, 2**31, settled=True, state=A)
    assert delivery.accepted


def test_a_rejection_names_the_reason() -> None:
    _, peer, session = connected()
    link = sending(peer, session)
    delivery = link.send(BODY)
    link.pump()
    error = Error(condition=Symbol("amqp:resource-limit-exceeded"), description="the queue is full")
    peer.settle(RECEIVER, 0, settled=True, state=Rejected(error))
    with pytest.raises(MessageRejected, match="the queue is full") as caught:
        delivery.check()
    assert caught.value.condition == "amqp:resource-limit-exceeded"


def test_in_mode_second_the_sender_settles_an_outcome() -> None:
    _, peer, session = connected()
    link = sending(peer, session, mode="second")
    deliveries = [link.send(BODY) for _ in range(3)]
    link.pump()
    peer.read()
    peer.settle(RECEIVER, 0, 2, state=A)
    answer = peer.last(Disposition)
    assert (answer.role, answer.first, answer.last, answer.settled) == (SENDER, 0, 2, True)
    assert all(delivery.settled for delivery in deliveries)


def test_with_manual_settling_the_caller_records_first() -> None:
    _, peer, session = connected()
    link = sending(peer, session, mode="second", manual=True)
    delivery = link.send(BODY)
    link.pump()
    peer.settle(RECEIVER, 0, state=A)
    assert (delivery.accepted, delivery.settled) == (True, False)
    assert not peer.all(Disposition)
    link.settle(delivery)
    assert peer.last(Disposition).settled


def test_presettled_messages_are_not_remembered() -> None:
    _, peer, session = connected()
    link = sending(peer, session, mode="presettled")
    link.send(BODY)
    link.pump()
    assert peer.last(Transfer).settled
    assert not link.unsettled


def test_a_drain_uses_up_the_credit() -> None:
    _, peer, session = connected()
    link = sending(peer, session, credit=3)
    link.send(BODY)
    link.pump()
    peer.credit(link, 2, seen=1, drain=True)
    answer = peer.last(Flow)
    assert (answer.delivery_count, answer.link_credit) == (3, 0)


def test_an_echo_is_answered() -> None:
    _, peer, session = connected()
    link = sending(peer, session, credit=3)
    peer.credit(link, 3, echo=True)
    assert peer.last(Flow).link_credit == 3


@pytest.mark.parametrize("tag", [b"", b"x" * 33])
def test_a_tag_has_a_limit(tag: bytes) -> None:
    _, peer, session = connected()
    link = sending(peer, session)
    with pytest.raises(UsageError, match="1 to 32 bytes"):
        link.send(BODY, tag=tag)


def test_a_message_above_the_peers_limit_is_refused() -> None:
    _, peer, session = connected()
    link = session.outgoing_link("out", LinkOptions("q"))
    session.attach(link)
    peer.attach(link, max_message_size=10)
    with pytest.raises(UsageError, match="at most 10"):
        link.send(b"x" * 11)


def test_without_a_durable_terminus_messages_without_outcome_are_sent_again() -> None:
    _, peer, session = connected()
    link = sending(peer, session)
    first, second = link.send(BODY), link.send(BODY)
    link.pump()
    peer.read()
    peer.settle(RECEIVER, 0, settled=True, state=A)
    again = reconnected(peer)
    again.attach(link)
    assert first.settled
    assert [(each.delivery_tag, each.resume) for each in again.all(Transfer)] == [(second.tag, False)]
    again.settle(RECEIVER, 0, settled=True, state=A)
    assert second.accepted


# ---- resuming ----


def suspended(states: dict[bytes, Any], **options: Any) -> tuple[Peer, Any, dict[bytes, OutgoingDelivery]]:
    """Send a message for each tag, give it a state, and lose the connection; return the peer of the next one."""
    _, peer, session = connected(**options)
    link = sending(peer, session, mode="second", terminus=DURABLE, manual=True)
    deliveries = {tag: link.send(BODY, tag=tag) for tag in states}
    link.pump()
    peer.read()
    for number, state in enumerate(states.values()):
        if state is not None:
            peer.settle(RECEIVER, number, state=state)
    return reconnected(peer), link, deliveries


@pytest.mark.rule("SET-11")
@pytest.mark.parametrize(
    ("local", "remote", "expected"),
    [
        pytest.param(None, "absent", {"resume": False, "settled": False, "payload": BODY}, id="row 1"),
        pytest.param(None, Received(0, 3), {"resume": True, "settled": False, "payload": BODY[3:]}, id="row 2"),
        pytest.param(None, None, {"resume": True, "settled": False, "payload": BODY}, id="row 4"),
        pytest.param(A, "absent", None, id="row 10"),
        pytest.param(A, Received(0, 3), {"resume": True, "aborted": True}, id="row 11"),
        pytest.param(A, A, {"resume": True, "settled": True, "state": A, "payload": b""}, id="row 12"),
        pytest.param(A, R, {"resume": True, "settled": False, "state": A, "payload": b""}, id="row 13"),
        pytest.param(A, None, {"resume": True, "aborted": True}, id="row 14"),
    ],
)
def test_a_delivery_is_resumed_by_the_table(local: Any, remote: Any, expected: dict[str, Any] | None) -> None:
    peer, link, deliveries = suspended({b"t": local})
    assert peer.last(Attach).unsettled == {b"t": local}
    peer.attach(link, unsettled={} if remote == "absent" else {b"t": remote})
    if local is not None and remote in ("absent", A):  # the caller has recorded the outcome
        link.settle(deliveries[b"t"])
        peer.read()
    transfers = [(performative, payload) for performative, payload in peer.sent if isinstance(performative, Transfer)]
    if expected is None:
        assert not transfers
        assert deliveries[b"t"].settled
        return
    ((transfer, payload),) = transfers
    assert transfer.delivery_tag == b"t"
    for name, value in expected.items():
        assert (payload if name == "payload" else getattr(transfer, name)) == value


@pytest.mark.rule("SET-11")
def test_row_3_is_recorded_before_the_transfer_settles_it() -> None:
    peer, link, deliveries = suspended({b"t": None})
    peer.attach(link, unsettled={b"t": A})
    delivery = deliveries[b"t"]
    assert delivery.accepted
    assert not peer.all(Transfer)
    link.settle(delivery)
    transfer = peer.last(Transfer)
    assert (transfer.resume, transfer.settled, transfer.state) == (True, True, A)
    assert peer.payloads() == [b""]
    assert delivery.settled
    assert not link.unsettled


def test_resumed_deliveries_come_before_new_ones() -> None:
    peer, link, _ = suspended({b"1": None, b"2": None})
    link.send(BODY, tag=b"3")
    peer.attach(link, unsettled={b"2": None})
    assert [(each.delivery_tag, each.resume) for each in peer.all(Transfer)] == [
        (b"1", False),
        (b"2", True),
        (b"3", False),
    ]


@pytest.mark.rule("SET-11")
def test_a_map_that_fits_no_frame_is_resumed_in_portions() -> None:
    tags = [bytes((number,)) * 32 for number in range(1, 40)]
    peer, link, deliveries = suspended(dict.fromkeys(tags), max_frame_size=512)
    rounds = 0
    while True:
        asked = peer.last(Attach)
        assert set(asked.unsettled) <= set(link.unsettled)
        peer.attach(link, unsettled=dict.fromkeys(asked.unsettled, None))
        before = len(peer.all(Transfer))
        assert all(transfer.resume for transfer in peer.all(Transfer))
        for transfer in peer.all(Transfer):
            peer.settle(RECEIVER, transfer.delivery_id, state=A)
        for delivery in list(link.unsettled.values()):
            if delivery.accepted:
                link.settle(delivery)
        peer.read()
        rounds += 1
        if not asked.incomplete_unsettled:
            break
        assert before
        assert not peer.last(Detach).closed
        peer.send(Detach(link.handle))
        peer.read()
    assert rounds > 2
    assert all(delivery.settled for delivery in deliveries.values())
    assert link.attached


def test_deliveries_of_a_transaction_end_with_the_connection() -> None:
    _, peer, session = connected()
    link = sending(peer, session, mode="second", terminus=DURABLE)
    delivery = link.send(BODY, transaction=b"1")
    link.pump()
    assert peer.last(Transfer).state.txn_id == b"1"
    again = reconnected(peer)
    assert again.last(Attach).unsettled == {}
    assert delivery.settled
    assert not delivery.accepted
