"""Termini on loan to links: stealing, expiry, durability, exactly-once posts."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.core.queues.outcome import Disposition as Settlement
from escrowmq.wire.amqp10.codec.performatives import (
    RECEIVER,
    SECOND,
    SENDER,
    Attach,
    Detach,
    Disposition,
    End,
    Flow,
    Transfer,
)
from escrowmq.wire.amqp10.codec.states import Accepted, Modified, Released
from escrowmq.wire.amqp10.codec.termini import Source, Target
from escrowmq.wire.amqp10.codec.types import Symbol
from escrowmq.wire.amqp10.errors import INVALID_FIELD, NOT_IMPLEMENTED, STOLEN, UNAUTHORIZED
from escrowmq.wire.amqp10.lending import default_of
from tests.unit.wire.amqp10.clients import Client, Server, connected, message

NEVER: dict[str, Any] = {"expiry_policy": "never"}


def ready(made: Server) -> int:
    return made.broker.directory.vhost("/").queue("q").ready


def unsettled(made: Server) -> dict[str, int]:
    return {key.link: terminus.unsettled for key, terminus in made.broker.termini.by_key.items()}


@pytest.mark.parametrize("where", ["session", "another session", "another connection"])
def test_a_link_of_the_same_name_steals_the_terminus(where: str) -> None:
    made, client = connected()
    client.sender("q")
    client.post(0, b"a", settled=True)
    client.receiver("q", 1, name="l", credit=5)
    assert client.deliveries() == [(0, b"a")]
    thief = Client(made) if where == "another connection" else client
    channel = 1 if where == "another session" else 0
    if channel:
        client.begin(1)
    thief.send(channel, Attach("l", 2, RECEIVER, source=Source("q"), target=Target()))
    made.end_turn()
    client.collect()
    client.detached(1, STOLEN)
    assert thief.expect(Attach).source is not None
    thief.flow(2, 1, channel=channel)
    assert [body for _, body in thief.deliveries()] == [b"a"]
    client.send(0, Disposition(role=RECEIVER, first=0, settled=True, state=Accepted()))
    assert unsettled(made)["l"] == 1  # the delivery of the old link is over, whatever its client says


def test_a_producer_is_stolen_too() -> None:
    made, client = connected()
    client.sender("q", name="l")
    other = Client(made)
    other.sender("q", name="l")
    made.end_turn()
    client.collect()
    client.detached(0, STOLEN)


def test_links_of_two_roles_share_a_name() -> None:
    _, client = connected()
    client.sender("q", 0, name="l")
    client.receiver("q", 1, name="l")
    assert client.idle()


def test_a_terminus_belongs_to_its_user() -> None:
    made, client = connected()
    made.broker.access.add_user("other", "hash")
    made.broker.access.set_permission("other", "/", ".*", ".*", ".*")
    client.sender("q", name="l")
    other = Client(made, "other")
    other.refused(Attach("l", 0, SENDER, target=Target("q"), initial_delivery_count=0), UNAUTHORIZED)


@pytest.mark.parametrize(
    ("source", "after_detach", "after_end", "after_loss"),
    [
        ({"expiry_policy": "link-detach"}, 0, 0, 0),
        ({"expiry_policy": "session-end"}, 1, 0, 0),
        ({"expiry_policy": "connection-close"}, 1, 1, 0),
        (NEVER, 1, 1, 1),
        ({"expiry_policy": "link-detach", "timeout": 60}, 1, 1, 1),
    ],
)
def test_a_terminus_lives_as_its_policy_says(
    source: dict[str, Any], after_detach: int, after_end: int, after_loss: int
) -> None:
    made, client = connected()
    client.sender("q")
    client.post(0, b"a", settled=True)
    client.receiver(None, 1, source=Source("q", **source), credit=1)
    assert len(client.deliveries()) == 1
    client.send(0, Detach(handle=1, closed=False))
    client.expect(Detach)
    assert unsettled(made).get("r1", 0) == after_detach
    client.send(0, End())
    assert unsettled(made).get("r1", 0) == after_end
    made.lose(client.port)
    made.end_turn()
    assert unsettled(made).get("r1", 0) == after_loss
    made.after(60_001)
    assert unsettled(made).get("r1", 0) == (1 if source is NEVER else 0)
    assert ready(made) == 1 - unsettled(made).get("r1", 0)


def test_a_closing_detach_ends_the_terminus() -> None:
    made, client = connected()
    client.sender("q")
    client.post(0, b"a", settled=True)
    client.receiver(None, 1, source=Source("q", **NEVER), credit=1)
    client.send(0, Detach(handle=1, closed=True))
    assert "r1" not in unsettled(made)
    assert ready(made) == 1


@pytest.mark.parametrize(("mode", "asked", "given"), [(SECOND, 2, 2), (SECOND, 1, 1), (0, 2, 1), (0, 1, 1), (0, 0, 0)])
def test_the_durability_that_is_granted_is_reported(mode: int, asked: int, given: int) -> None:
    made, client = connected()
    source = Source("q", durable=asked, expiry_policy="never", timeout=2**32 - 1)
    answer = client.receiver(None, source=source, rcv_settle_mode=mode)
    assert answer.source is not None
    assert answer.source.durable == given
    assert answer.source.timeout == made.broker.termini.limits.timeout_ms // 1000


@pytest.mark.parametrize("fields", [{"durable": 3}, {"expiry_policy": "tomorrow"}])
def test_an_unknown_durability_or_policy_is_refused(fields: dict[str, Any]) -> None:
    _, client = connected()
    client.refused(Attach("l", 1, RECEIVER, source=Source("q", **fields)), INVALID_FIELD)


def test_an_empty_map_is_answered_with_an_empty_one() -> None:
    _, client = connected()
    assert client.receiver("q", unsettled={}).unsettled == {}
    assert client.sender("q", unsettled={}).unsettled == {}


def test_a_client_may_ask_for_the_terminus_that_it_had() -> None:
    _, client = connected()
    first = client.receiver(None, 1, name="l", source=Source("q", durable=1, expiry_policy="never"))
    client.send(0, Detach(handle=1, closed=False))
    client.expect(Detach)
    client.send(0, Attach("l", 1, RECEIVER, source=None, target=Target()))
    assert client.expect(Attach).source == first.source


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (None, Settlement.MODIFIED),
        (Accepted(), Settlement.ACCEPTED),
        (Released(), Settlement.RELEASED),
        (Modified(delivery_failed=True), Settlement.MODIFIED),
        (Modified(), Settlement.RELEASED),
    ],
)
def test_default_outcomes(outcome: object, expected: Settlement) -> None:
    assert default_of(outcome) is expected


@pytest.mark.parametrize("outcome", [Modified(undeliverable_here=True), Modified(message_annotations={Symbol("a"): 1})])
def test_a_default_outcome_that_cannot_be_kept_is_refused(outcome: Modified) -> None:
    _, client = connected()
    client.refused(Attach("l", 1, RECEIVER, source=Source("q", default_outcome=outcome)), NOT_IMPLEMENTED)


def exactly_once(made: Server, client: Client) -> None:
    target = Target("q", durable=2, expiry_policy="never")
    answer = client.sender(None, target=target, rcv_settle_mode=SECOND)
    assert isinstance(answer.target, Target)
    assert answer.target.durable == 2


def test_an_exactly_once_post_is_visible_when_its_tag_is_on_disk() -> None:
    made, client = connected()
    exactly_once(made, client)
    client.receiver("q", credit=5)
    transfer = Transfer(0, 0, b"t", 0, False)
    from escrowmq.wire.amqp10.codec.frames import frame
    from escrowmq.wire.amqp10.codec.performatives import encode_performative

    client.send_bytes(frame(0, encode_performative(transfer), message(b"a", durable=True)), disk=False)
    assert client.idle()
    made.run_disk()
    client.collect()
    found = {type(each.performative) for each in client.inbox}
    assert found == {Disposition, Transfer}
    assert unsettled(made)["s0"] == 1
    client.send(0, Disposition(role=SENDER, first=0, settled=True))
    assert unsettled(made)["s0"] == 0


def test_outcomes_of_refused_posts_are_kept_until_they_are_settled() -> None:
    made, client = connected()
    client.sender("/exchanges/amq.direct/nowhere", rcv_settle_mode=SECOND)
    client.post(0)
    answer = client.outcome(0)
    assert (answer.state, answer.settled) == (Released(), False)
    assert unsettled(made)["s0"] == 1
    client.send(0, Disposition(role=SENDER, first=0, settled=True))
    assert unsettled(made)["s0"] == 0


def test_a_flow_after_a_steal_is_ignored() -> None:
    made, client = connected()
    client.receiver("q", 1, name="l")
    other = Client(made)
    other.receiver("q", 1, name="l")
    client.collect()
    client.send(
        0, Flow(next_incoming_id=0, incoming_window=9, next_outgoing_id=0, outgoing_window=9, handle=1, link_credit=5)
    )
    client.inbox.clear()
    assert client.idle()
