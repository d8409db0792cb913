"""Deliveries in several frames: they count for their user, and an interrupted link leaves them with its terminus."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.server.relief import Relief
from escrowmq.wire.amqp10.codec.frames import frame
from escrowmq.wire.amqp10.codec.performatives import (
    SECOND,
    SENDER,
    UNSETTLED_MODE,
    Attach,
    Detach,
    Disposition,
    Flow,
    Transfer,
    encode_performative,
)
from escrowmq.wire.amqp10.codec.sections import DATA, Header, encode_header, encode_section, split_head
from escrowmq.wire.amqp10.codec.states import Accepted, DeliveryState, Received, Rejected, Released, TransactionalState
from escrowmq.wire.amqp10.codec.termini import Source, Target
from escrowmq.wire.amqp10.errors import INVALID_FIELD, LIMIT_EXCEEDED
from escrowmq.wire.amqp10.parts import OVERLAP
from tests.unit.wire.amqp10.clients import Client, Server, connected, server
from tests.unit.wire.amqp10.controller import Controller

HEADER = encode_header(Header(durable=True))
WAYS = ("drop", "detach", "steal")


def large(content: int) -> bytes:
    """Return a message of two sections, which differs in every octet of its body from one of another `content`."""
    return HEADER + encode_section(DATA, bytes((i + content) % 251 for i in range(1000)))


MESSAGE = large(0)
CUT = 700
"""Octets that arrive before the link is interrupted."""
POINT = Received(1, CUT - OVERLAP - len(HEADER))
"""The point that the broker names then."""


def part(client: Client, payload: bytes, **fields: Any) -> None:
    chosen: dict[str, Any] = {"delivery_id": 0, "delivery_tag": b"t", "message_format": 0, "settled": False} | fields
    transfer = Transfer(0, **chosen)
    client.send_bytes(frame(0, encode_performative(transfer), payload))


def attached(client: Client, **fields: Any) -> Attach:
    target = Target("q", durable=2, expiry_policy="never")
    given: dict[str, Any] = {"source": Source(), "target": target, "initial_delivery_count": 0} | fields
    client.send(0, Attach("l", 0, SENDER, UNSETTLED_MODE, given.pop("mode", SECOND), **given))
    answer = client.expect(Attach)
    assert answer.target is not None, client.inbox
    client.expect(Flow)
    return answer


def interrupted(made: Server, client: Client, way: str) -> tuple[Server, Client]:
    """Interrupt the link; return the server and the client with which it goes on."""
    if way == "detach":
        client.send(0, Detach(handle=0, closed=False))
        client.inbox.clear()
        return made, client
    if way == "kill":
        made.storage.crash()
        made = server(storage=made.storage)
    if way == "drop":
        made.lose(client.port)
    return made, Client(made)


def cut_off(way: str = "drop", payload: bytes = MESSAGE[:CUT], **fields: Any) -> tuple[Server, Client]:
    """Return a client whose link was interrupted amid the message `t`."""
    made, client = connected()
    attached(client, **fields)
    part(client, payload[:300], more=True)
    part(client, payload[300:], more=True, delivery_id=None, delivery_tag=None)
    return interrupted(made, client, way)


def stored(made: Server) -> list[bytes]:
    """Take the messages out of the queue."""
    reader = Client(made, container="reader")
    reader.receiver("q", settled=True, credit=10)
    payloads = [each.payload for each in reader.inbox]
    made.lose(reader.port)
    return [HEADER + payload[split_head(payload)[1] :] for payload in payloads]


def held(made: Server) -> int:
    return made.broker.holdings.of_user("guest")


@pytest.mark.rule("SET-4", "SET-11", "SET-3")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("state", [None, Received(0, 0), Received(1, 5)], ids=["row 2", "row 6", "row 6, later"])
def test_rows_2_and_6_the_client_continues_at_the_point_that_the_broker_names(
    way: str, state: DeliveryState | None
) -> None:
    made, client = cut_off(way)
    assert attached(client, unsettled={b"t": state}).unsettled == {b"t": POINT}
    part(client, MESSAGE[CUT - OVERLAP : 900], resume=True, state=POINT, more=True)
    part(client, MESSAGE[900:], delivery_id=None, delivery_tag=None)
    answer = client.outcome(0)
    assert (answer.state, answer.settled) == (Accepted(), False)
    assert stored(made) == [MESSAGE]
    assert held(made) == 0
    client.send(0, Disposition(role=SENDER, first=0, settled=True))


@pytest.mark.rule("SET-4", "SET-11")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("state", "begin"), [(None, 0), (Received(0, 0), 0), (Received(1, 0), len(HEADER))])
def test_the_client_may_continue_at_an_earlier_point(way: str, state: DeliveryState | None, begin: int) -> None:
    made, client = cut_off(way)
    attached(client, unsettled={b"t": None})
    part(client, MESSAGE[begin:], resume=True, state=state)
    assert client.outcome(0).state == Accepted()
    assert stored(made) == [MESSAGE]


@pytest.mark.rule("SET-4", "SET-11")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("state", [Received(1, 900), Accepted()], ids=["row 7", "row 11"])
def test_rows_7_and_11_an_aborted_part_is_forgotten(way: str, state: DeliveryState) -> None:
    made, client = cut_off(way)
    assert attached(client, unsettled={b"t": state}).unsettled == {b"t": POINT}
    part(client, b"", resume=True, aborted=True)
    assert client.idle()
    assert (stored(made), held(made)) == ([], 0)
    if isinstance(state, Received):  # row 7: it follows as a new message
        part(client, MESSAGE, delivery_id=1)
        assert client.outcome(1).state == Accepted()
        assert stored(made) == [MESSAGE]


@pytest.mark.rule("SET-4", "SET-11")
@pytest.mark.parametrize("state", [None, Received(0, 0), Accepted()])
def test_rows_1_5_and_10_nothing_is_left_after_a_crash_of_the_broker(state: DeliveryState | None) -> None:
    made, client = cut_off("kill")
    assert attached(client, unsettled={b"t": state}).unsettled == {}
    part(client, MESSAGE)
    assert client.outcome(0).state == Accepted()
    assert stored(made) == [MESSAGE]


@pytest.mark.rule("SET-4")
def test_a_delivery_may_be_interrupted_again_and_again() -> None:
    made, client = cut_off()
    attached(client, unsettled={b"t": None})
    part(client, MESSAGE[CUT - OVERLAP : CUT - 100], resume=True, state=POINT, more=True)  # nothing that is new
    made, client = interrupted(made, client, "drop")
    assert attached(client, unsettled={b"t": None}).unsettled == {b"t": POINT}
    part(client, MESSAGE[CUT - OVERLAP : 800], resume=True, state=POINT, more=True)
    made, client = interrupted(made, client, "steal")
    later = Received(1, 800 - OVERLAP - len(HEADER))
    assert attached(client, unsettled={b"t": None}).unsettled == {b"t": later}
    part(client, MESSAGE[800 - OVERLAP :], resume=True, state=later)
    assert client.outcome(0).state == Accepted()
    assert stored(made) == [MESSAGE]


@pytest.mark.rule("SET-9")
def test_another_message_under_the_same_tag_is_released_if_its_beginning_is_missing() -> None:
    made, client = cut_off()
    attached(client, unsettled={b"t": None})
    part(client, large(7)[CUT - OVERLAP :], resume=True, state=POINT)
    answer = client.outcome(0)
    assert (answer.state, answer.settled) == (Released(), False)
    assert (stored(made), held(made)) == ([], 0)


@pytest.mark.rule("SET-9")
@pytest.mark.parametrize("again", [True, False])
def test_another_message_under_the_same_tag_that_comes_as_a_whole_is_taken(again: bool) -> None:
    made, client = cut_off()
    attached(client, unsettled={b"t": None})
    part(client, large(7), resume=again)
    assert client.outcome(0).state == Accepted()
    assert stored(made) == [large(7)]
    assert made.broker.termini.by_key
    assert held(made) == 0


@pytest.mark.rule("SET-9")
def test_a_settled_message_that_is_not_the_one_in_part_costs_the_link() -> None:
    made, client = cut_off()
    attached(client, unsettled={b"t": None})
    part(client, large(7)[CUT - OVERLAP :], resume=True, state=POINT, settled=True)
    client.detached(0, "amqp:illegal-state")
    assert stored(made) == []


def test_a_part_that_is_settled_when_it_is_complete_is_published() -> None:
    made, client = cut_off()
    attached(client, unsettled={b"t": None})
    part(client, MESSAGE[CUT - OVERLAP :], resume=True, state=POINT, settled=True)
    assert client.idle()
    assert stored(made) == [MESSAGE]


def test_a_client_that_leaves_octets_out_loses_the_link() -> None:
    _, client = cut_off()
    attached(client, unsettled={b"t": None})
    part(client, MESSAGE[900:], resume=True, state=Received(1, 900))
    client.detached(0, INVALID_FIELD)


def test_a_short_part_is_sent_again_as_a_whole() -> None:
    _, client = cut_off(payload=MESSAGE[:100])
    assert attached(client, unsettled={b"t": None}).unsettled == {b"t": Received(0, 0)}


@pytest.mark.parametrize(
    ("unsettled", "incomplete", "left"), [({}, False, False), ({}, True, True), (None, False, False)]
)
def test_a_client_whose_map_does_not_name_the_delivery_has_settled_it(
    unsettled: dict[bytes, DeliveryState | None] | None, incomplete: bool, left: bool
) -> None:
    made, client = cut_off()
    answer = attached(client, unsettled=unsettled, incomplete_unsettled=incomplete)
    assert not answer.unsettled
    assert (held(made) > 0) is left


def test_a_link_that_settles_first_keeps_nothing() -> None:
    made, client = cut_off(mode=0)
    assert attached(client, mode=0, unsettled={b"t": None}).unsettled == {}
    assert held(made) == 0


def test_a_settled_delivery_is_not_kept() -> None:
    made, client = connected()
    attached(client)
    part(client, MESSAGE[:CUT], more=True, settled=True)
    made, client = interrupted(made, client, "drop")
    assert attached(client, unsettled={b"t": None}).unsettled == {}
    assert held(made) == 0


def test_a_message_that_is_sent_again_and_interrupted_is_still_known() -> None:
    made, client = connected()
    attached(client)
    part(client, MESSAGE)
    made.lose(client.port)
    client = Client(made)
    assert attached(client, unsettled={b"t": None}).unsettled == {b"t": None}
    part(client, MESSAGE[:CUT], resume=True, more=True)
    made.lose(client.port)
    client = Client(made)
    assert attached(client, unsettled={b"t": None}).unsettled == {b"t": None}
    part(client, MESSAGE, resume=True)
    assert client.outcome(0).state == Accepted()
    assert stored(made) == [MESSAGE]
    assert held(made) == 0


@pytest.mark.rule("SET-7", "SET-3")
@pytest.mark.parametrize("commits", [True, False])
def test_a_message_that_arrived_in_part_is_posted_in_a_transaction(commits: bool) -> None:
    made, client = cut_off()
    attached(client, unsettled={b"t": None})
    controller = Controller(client=client)
    ident = controller.declare()
    part(client, MESSAGE, resume=True, state=TransactionalState(ident))
    answer = client.outcome(0)
    assert (answer.state, answer.settled) == (TransactionalState(ident, Accepted()), False)
    assert stored(made) == []
    (controller.commit if commits else controller.rollback)(ident)
    assert stored(made) == ([MESSAGE] if commits else [])
    assert held(made) == 0


@pytest.mark.rule("SET-7", "SET-9")
@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize(
    ("message", "expected"), [(MESSAGE, [MESSAGE]), (large(7), [MESSAGE, large(7)])], ids=["same", "new"]
)
def test_a_resumed_message_is_posted_in_a_transaction_unless_it_had_arrived(
    commits: bool, message: bytes, expected: list[bytes]
) -> None:
    made, client = connected()
    attached(client)
    part(client, MESSAGE)
    made.lose(client.port)
    client = Client(made)
    assert attached(client, unsettled={b"t": None}).unsettled == {b"t": None}
    controller = Controller(client=client)
    ident = controller.declare()
    part(client, message, resume=True, state=TransactionalState(ident))
    state = client.outcome(0).state
    assert state == (Accepted() if message == MESSAGE else TransactionalState(ident, Accepted()))
    (controller.commit if commits else controller.rollback)(ident)
    assert stored(made) == (expected if commits else [MESSAGE])


@pytest.mark.rule("FAIR-2")
@pytest.mark.parametrize("end", ["close", "expire", "abort", "lost"])
def test_an_incomplete_message_counts_until_its_end(end: str) -> None:
    made, client = connected()
    attached(client, mode=0 if end == "lost" else SECOND)
    part(client, MESSAGE[:CUT], more=True)
    assert held(made) > 0
    if end == "close":
        client.send(0, Detach(handle=0, closed=True))
    elif end == "abort":
        part(client, b"", aborted=True)
    else:
        made.lose(client.port)
        if end == "expire":
            assert held(made) > 0
            for terminus in list(made.broker.termini.by_key.values()):
                made.broker.termini.end(terminus)
    assert held(made) == 0


@pytest.mark.rule("FAIR-3")
@pytest.mark.parametrize("second", [SECOND, 0])
def test_a_message_beyond_the_memory_of_the_user_is_rejected(second: int) -> None:
    made, client = connected()
    made.broker.holdings.user_limit = 65_536
    attached(client, mode=second)
    for number in range(3):
        part(client, b"\0" * 40_000, more=number < 2)
    state = client.outcome(0).state
    assert isinstance(state, Rejected)
    assert state.error is not None
    assert state.error.condition == LIMIT_EXCEEDED
    assert "no memory for a message that is incomplete" in (state.error.description or "")
    assert held(made) == 0
    part(client, MESSAGE, delivery_id=1, delivery_tag=b"u")
    assert client.outcome(1).state == Accepted()


@pytest.mark.rule("FAIR-3")
def test_a_settled_message_beyond_the_memory_of_the_user_costs_the_link() -> None:
    made, client = connected()
    made.broker.holdings.user_limit = 65_536
    attached(client)
    part(client, b"\0" * 100_000, more=True, settled=True)
    part(client, b"\0", settled=True)
    client.detached(0, LIMIT_EXCEEDED)
    assert held(made) == 0


def relieved(made: Server) -> None:
    """Let the time of grace pass, and take back memory."""
    relief = Relief(made.broker, limit_bytes=1000, grace_ms=1000)
    relief.look()
    made.now += 1000
    made.broker.engine.now = made.now
    relief.look()
    made.end_turn()


@pytest.mark.rule("FAIR-2", "FAIR-3")
def test_an_incomplete_message_is_given_up_while_memory_is_short() -> None:
    made, client = connected()
    attached(client)
    part(client, MESSAGE[:CUT], more=True)
    assert made.broker.holdings.of_user("guest") > 0
    relieved(made)
    client.collect()
    detach = client.expect(Detach)
    assert detach.error is not None
    assert detach.error.condition == LIMIT_EXCEEDED
    assert "memory is short" in (detach.error.description or "")
    assert made.broker.holdings.of_user("guest") == 0
    (terminus,) = made.broker.termini.by_key.values()
    assert terminus.arrivals.partial is None


@pytest.mark.rule("FAIR-2", "FAIR-3")
def test_an_interrupted_message_is_given_up_while_memory_is_short() -> None:
    made, client = connected()
    attached(client)
    part(client, MESSAGE[:CUT], more=True)
    made.lose(client.port)
    (terminus,) = made.broker.termini.by_key.values()
    assert terminus.incomplete_bytes == CUT
    relieved(made)
    assert terminus.incomplete_bytes == made.broker.holdings.of_user("guest") == 0
    assert list(made.broker.termini.by_key.values()) == [terminus], "its other deliveries stay"


@pytest.mark.rule("FAIR-3")
@pytest.mark.parametrize("end", ["complete", "abort", "lose"])
def test_a_message_that_is_no_longer_incomplete_holds_nothing(end: str) -> None:
    made, client = connected()
    client.sender("q")
    before = len(made.broker.engine.holders)
    part(client, MESSAGE[:CUT], more=True)
    assert len(made.broker.engine.holders) == before + 1
    if end == "lose":
        made.lose(client.port)
        made.end_turn()
        assert not made.broker.engine.holders
        return
    part(client, MESSAGE[CUT:], aborted=end == "abort")
    assert len(made.broker.engine.holders) == before
