"""Deliveries of an earlier link are sent again, before anything new. Each row is tested in `test_resuming`."""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import Any

import pytest

from escrowmq.core.budget import ADOPTED, RESENT, TURN
from escrowmq.wire.amqp10.attaching import MANY as MANY_IN_MAP
from escrowmq.wire.amqp10.codec.frames import frame
from escrowmq.wire.amqp10.codec.performatives import (
    RECEIVER,
    SECOND,
    UNSETTLED_MODE,
    Attach,
    Detach,
    Flow,
    Transfer,
    encode_performative,
)
from escrowmq.wire.amqp10.codec.states import Accepted, DeliveryState
from escrowmq.wire.amqp10.codec.termini import Source, Target
from escrowmq.wire.amqp10.resumption import PIECE
from tests.unit.wire.amqp10.clients import ALL, Client, Message, Server
from tests.unit.wire.amqp10.test_resuming import KEPT, delivered, interrupted, kept, ready, receiving

MANY = 300


def test_credit_is_granted_bit_by_bit() -> None:
    made, client, tags = delivered(b"a", b"b", b"c")
    made, client = interrupted(made, client, 1, "drop")
    receiving(client, unsettled={})
    for count, tag in enumerate(tags):
        client.flow(1, 1, delivery_count=count)
        transfer = client.expect(Transfer)
        assert (transfer.delivery_tag, transfer.delivery_id, transfer.resume) == (tag, count, False)
        assert client.idle()


def test_a_delivery_that_was_settled_by_an_operator_meanwhile_is_left_out() -> None:
    made, client, tags = delivered(b"a", b"b")
    made, client = interrupted(made, client, 1, "drop")
    receiving(client, unsettled={})
    (terminus,) = [each for key, each in made.broker.termini.by_key.items() if key.link == "l"]
    terminus.deliveries.take(1, 1)
    client.flow(1, 10)
    assert client.expect(Transfer).delivery_tag == tags[1]
    assert client.idle()


@pytest.mark.rule("DUR-4")
def test_a_link_whose_deliveries_cannot_be_read_is_detached_and_can_resume_later() -> None:
    made, client, tags = delivered(b"a", b"b")
    made, client = interrupted(made, client, 1, "kill")
    receiving(client, unsettled={})
    made.storage.faults.read_fails = 1.0
    client.flow(1, 10, echo=True)
    detach = client.expect(Detach)
    assert not detach.closed
    assert detach.error is not None
    assert "cannot be read" in (detach.error.description or "")
    assert client.idle()
    made.storage.faults.read_fails = 0.0
    client.send(0, Detach(handle=1, closed=False))
    receiving(client, 10, unsettled={})
    assert [client.expect(Transfer).delivery_tag for _ in tags] == tags


def many(way: str = "drop") -> tuple[Server, Client, list[bytes]]:
    """Return a client that may resume a link with many deliveries, and their tags."""
    made, client, tags = delivered(*[b"%d" % number for number in range(MANY)])
    return (*interrupted(made, client, 1, way), tags)


def in_one_turn(client: Client, *performatives: Any) -> list[Message]:
    """Send performatives, and return the answers of this turn."""
    data = b"".join(frame(0, encode_performative(performative)) for performative in performatives)
    client.server.receive(client.port, data)
    return of_turn(client)


def of_turn(client: Client) -> list[Message]:
    """Return the messages of the server's next turn."""
    client.server.end_one_turn()
    client.server.take_batch()
    client.server.write_batch()
    client.server.report_batch()
    client.collect()
    found, client.inbox = list(client.inbox), deque()
    return found


def granting(credit: int, **fields: Any) -> Flow:
    return Flow(
        next_incoming_id=0,
        incoming_window=ALL,
        next_outgoing_id=0,
        outgoing_window=ALL,
        handle=1,
        link_credit=credit,
        delivery_count=0,
        **fields,
    )


@pytest.mark.rule("FAIR-1", "SET-11")
@pytest.mark.parametrize("way", ["detach", "kill"])
def test_many_deliveries_are_sent_again_in_pieces_and_in_order(way: str) -> None:
    made, client, tags = many(way)
    receiving(client, unsettled={})
    pieces = [in_one_turn(client, granting(MANY))]
    while made.broker.engine.turn.unfinished:
        pieces.append(of_turn(client))
    pieces.append(of_turn(client))
    most = 2 * (TURN // RESENT + 1)  # at the request, and at the end of its turn
    assert max(map(len, pieces)) <= most
    assert [each.performative.delivery_tag for piece in pieces for each in piece] == tags


@pytest.mark.rule("FAIR-1")
def test_a_drain_is_answered_behind_deliveries_that_are_sent_again() -> None:
    made, client, _ = many()
    receiving(client, unsettled={})
    found = in_one_turn(client, granting(MANY + 5, drain=True))
    while made.broker.engine.turn.unfinished:
        found += of_turn(client)
    found += of_turn(client)
    assert [type(each.performative) for each in found] == [Transfer] * MANY + [Flow]
    answer = found[-1].performative
    assert (answer.delivery_count, answer.link_credit, answer.drain) == (MANY + 5, 0, True)


def test_an_echo_counts_the_credit_that_is_left_for_deliveries_sent_again() -> None:
    _, client, _ = many()
    receiving(client, unsettled={})
    found = in_one_turn(client, granting(MANY, echo=True))
    (answer,) = [each.performative for each in found if isinstance(each.performative, Flow)]
    assert (answer.delivery_count or 0) < MANY
    assert (answer.delivery_count or 0) + (answer.link_credit or 0) == MANY


@pytest.mark.rule("FAIR-1")
def test_a_link_that_is_detached_meanwhile_sends_nothing_more() -> None:
    made, client, _ = many()
    receiving(client, unsettled={})
    sent = in_one_turn(client, granting(MANY))
    found = in_one_turn(client, Detach(handle=1, closed=False))
    at = [type(each.performative) for each in found].index(Detach)
    client.server.end_turn()
    client.collect()
    assert len(sent) < MANY
    assert (found[at + 1 :], client.idle(), kept(made)) == ([], True, MANY)


def resuming(state: DeliveryState, tags: list[bytes]) -> Attach:
    source = Source("q", **KEPT)
    unsettled: dict[bytes, DeliveryState | None] = dict.fromkeys(tags, state)
    return Attach("l", 1, RECEIVER, UNSETTLED_MODE, SECOND, source=source, target=Target(), unsettled=unsettled)


@pytest.mark.rule("FAIR-1", "SET-11")
@pytest.mark.parametrize("way", ["detach", "kill"])
def test_many_known_outcomes_are_applied_in_pieces_before_the_link_may_end(way: str) -> None:
    made, client, tags = many(way)
    in_one_turn(client, resuming(Accepted(), tags), Detach(handle=1, closed=True))
    left = [kept(made)]
    while made.unfinished:
        made.end_one_turn()
        left.append(kept(made))
    assert MANY > left[0] > 0
    assert max(before - after for before, after in pairwise(left)) <= TURN // ADOPTED + PIECE
    assert (left[-1], ready(made)) == (0, 0)


def test_outcomes_are_not_applied_once_the_terminus_is_stolen() -> None:
    made, client, tags = many()
    other = Client(made)
    in_one_turn(client, resuming(Accepted(), tags))
    made.receive(other.port, frame(0, encode_performative(resuming(Accepted(), []))))
    made.end_turn()
    assert 0 < kept(made) < MANY


def test_a_large_map_is_handled_in_a_turn_of_its_own() -> None:
    made, client, tags = delivered(b"a")
    made, client = interrupted(made, client, 1, "drop")
    unknown = [b"%d" % number for number in range(MANY_IN_MAP + 1)]
    made.receive(client.port, frame(0, encode_performative(resuming(Accepted(), [*tags, *unknown]))))
    assert "l" not in {key.link for key, each in made.broker.termini.by_key.items() if each.loan and each.loan.current}
    made.end_turn()
    made.run_disk()
    client.collect()
    assert client.expect(Attach).unsettled == {tags[0]: None}
    assert (kept(made), ready(made)) == (0, 0)
