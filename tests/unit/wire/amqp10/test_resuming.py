"""Links resume frame by frame: each row, in both directions, after every kind of interruption (SET-11)."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.core.queues.outcome import Disposition as Outcome
from escrowmq.core.termini.arrivals import Arrival
from escrowmq.wire.amqp10.codec.composite import encode_composite
from escrowmq.wire.amqp10.codec.frames import frame
from escrowmq.wire.amqp10.codec.performatives import (
    RECEIVER,
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
from escrowmq.wire.amqp10.codec.states import (
    Accepted,
    DeliveryState,
    Modified,
    Received,
    Rejected,
    Released,
    TransactionalState,
)
from escrowmq.wire.amqp10.codec.termini import Source, Target
from escrowmq.wire.amqp10.errors import FRAME_SIZE_TOO_SMALL, STOLEN, TRANSACTION_ROLLBACK
from escrowmq.wire.amqp10.resuming import state_of
from tests.unit.wire.amqp10.clients import Client, Server, body, connected, message, server
from tests.unit.wire.amqp10.controller import Controller

Unsettled = dict[bytes, DeliveryState | None]
KEPT: dict[str, Any] = {"durable": 2, "expiry_policy": "never"}
WAYS = ("drop", "detach", "steal", "kill")


def interrupted(made: Server, client: Client, handle: int, way: str, **fields: Any) -> tuple[Server, Client]:
    """Interrupt a link; return the server and the client with which it goes on."""
    if way == "detach":
        client.send(0, Detach(handle=handle, closed=False))
        client.inbox.clear()
        return made, client
    if way == "kill":
        made.storage.crash()
        made = server(storage=made.storage)
    if way == "drop":
        made.lose(client.port)
    return made, Client(made, **fields)


def ready(made: Server) -> int:
    return made.broker.directory.vhost("/").queue("q").ready


def kept(made: Server) -> int:
    return sum(terminus.unsettled for key, terminus in made.broker.termini.by_key.items() if key.link == "l")


# -- the broker sends


def receiving(client: Client, credit: int = 0, **fields: Any) -> Attach:
    source = Source("q", **KEPT)
    client.send(0, Attach("l", 1, RECEIVER, UNSETTLED_MODE, SECOND, source=source, target=Target(), **fields))
    answer = client.expect(Attach)
    assert answer.source is not None, client.inbox
    if credit:
        client.flow(1, credit)
    return answer


def delivered(*contents: bytes, **fields: Any) -> tuple[Server, Client, list[bytes]]:
    """Return a client that has received these messages, and their tags."""
    made, client = connected()
    if fields:
        client = Client(made, **fields)
    client.sender("q")
    for number, content in enumerate(contents):
        client.post(number, content, settled=True, durable=True)
    client.inbox.clear()
    receiving(client, len(contents))
    return made, client, [client.expect(Transfer).delivery_tag or b"" for _ in contents]


def resumed(client: Client, unsettled: Unsettled, **fields: Any) -> tuple[Attach, list[tuple[Transfer, bytes]]]:
    """Attach again with this map, and return the answer and the transfers that follow."""
    answer = receiving(client, 100, unsettled=unsettled, **fields)
    found = []
    while client.inbox:
        each = client.expect_message(Transfer)
        found.append((each.performative, body(each.payload) if each.payload else b""))
    return answer, found


@pytest.mark.rule("SET-11", "SET-3")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("row", "state", "resume"), [(1, "absent", False), (2, Received(0, 0), True), (4, None, True)])
def test_a_delivery_without_an_outcome_is_sent_again(way: str, row: int, state: Any, resume: bool) -> None:
    made, client, (tag,) = delivered(b"a")
    made, client = interrupted(made, client, 1, way)
    answer, transfers = resumed(client, {} if state == "absent" else {tag: state})
    assert (answer.unsettled, answer.incomplete_unsettled) == ({tag: None}, False)
    ((transfer, content),) = transfers
    assert (transfer.delivery_tag, transfer.resume, bool(transfer.settled), content) == (tag, resume, False, b"a")
    client.send(0, Disposition(role=RECEIVER, first=transfer.delivery_id or 0, state=Accepted()))
    assert client.expect(Disposition).settled
    assert (kept(made), ready(made)) == (0, 0)


@pytest.mark.rule("SET-11", "SET-3")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("state", "left"),
    [(Accepted(), []), (Rejected(), []), (Released(), [b"a"]), (Modified(delivery_failed=True), [b"a"])],
)
def test_row_3_an_outcome_that_the_client_knows_is_applied_and_settled(
    way: str, state: DeliveryState, left: list[bytes]
) -> None:
    made, client, (tag,) = delivered(b"a")
    made, client = interrupted(made, client, 1, way)
    answer, transfers = resumed(client, {tag: state})
    assert answer.unsettled == {tag: None}
    first, content = transfers[0]
    assert (first.delivery_tag, first.resume, first.settled, first.state, content) == (tag, True, True, state, b"")
    assert [content for _, content in transfers[1:]] == left  # a returned message is delivered again, as a new one
    assert all(transfer.delivery_tag != tag for transfer, _ in transfers[1:])
    assert kept(made) == len(left)


@pytest.mark.rule("SET-11")
@pytest.mark.parametrize("way", WAYS)
def test_a_delivery_that_only_the_client_has_is_not_mentioned(way: str) -> None:
    made, client, (tag,) = delivered(b"a")
    client.send(0, Disposition(role=RECEIVER, first=0, state=Accepted()))
    client.inbox.clear()
    made, client = interrupted(made, client, 1, way)
    answer, transfers = resumed(client, {tag: Accepted(), b"other": None})
    assert (answer.unsettled, transfers) == ({}, [])
    assert (kept(made), ready(made)) == (0, 0)


@pytest.mark.rule("SET-10")
def test_locked_messages_go_to_nobody_else_until_the_link_resumes() -> None:
    made, client, (tag,) = delivered(b"a")
    made, client = interrupted(made, client, 1, "kill")
    client.receiver("q", 2, name="rival", credit=5)
    assert client.idle()
    _, transfers = resumed(client, {tag: None})
    assert [content for _, content in transfers] == [b"a"]


@pytest.mark.rule("SET-11")
def test_resumed_deliveries_spend_credit_and_come_before_new_ones() -> None:
    made, client, tags = delivered(b"a", b"b", b"c")
    made, client = interrupted(made, client, 1, "drop")
    client.sender("q")
    client.post(0, b"new", settled=True, durable=True)
    receiving(client, 2, unsettled={tags[0]: None, tags[2]: Accepted()})
    found = [client.expect_message(Transfer) for _ in range(2)]
    assert [each.performative.delivery_tag for each in found] == tags[:2]
    assert client.idle()
    client.flow(1, 2, delivery_count=2)
    last = [client.expect_message(Transfer) for _ in range(2)]
    assert [(each.performative.delivery_tag == tags[2], bool(each.payload)) for each in last] == [
        (True, False),
        (False, True),
    ]
    assert body(last[1].payload) == b"new"
    assert client.idle()


def test_resumed_deliveries_wait_for_the_window_of_the_session() -> None:
    made, client, tags = delivered(b"a", b"b")
    made.lose(client.port)
    client = Client(made, begins=False)
    client.begin(0, incoming_window=1)
    receiving(client, unsettled=dict.fromkeys(tags))
    client.flow(1, 10, incoming_window=1)
    assert client.expect(Transfer).delivery_tag == tags[0]
    assert client.idle()
    client.flow(None, next_incoming_id=1, incoming_window=5)
    assert client.expect(Transfer).delivery_tag == tags[1]


def test_a_message_larger_than_a_frame_is_resumed_in_several() -> None:
    large = b"x" * 200
    made, client, (tag,) = delivered(large)
    made.lose(client.port)
    client = Client(made, max_frame_size=512)
    client.sender("q")
    receiving(client, 1, unsettled={tag: None})
    transfer = client.expect(Transfer)
    assert (transfer.resume, transfer.delivery_tag) == (True, tag)


@pytest.mark.rule("SET-11")
@pytest.mark.parametrize("way", ["drop", "kill"])
def test_a_map_larger_than_a_frame_is_incomplete_and_reduced_by_attaching_again(way: str) -> None:
    made, client, tags = delivered(*[b"%d" % i for i in range(60)])
    made, client = interrupted(made, client, 1, way, max_frame_size=512)
    left = dict.fromkeys(tags)
    rounds = 0
    while True:
        some = dict(list(left.items())[:10])
        answer, transfers = resumed(client, some, incomplete_unsettled=len(some) < len(left))
        rounds += 1
        assert answer.unsettled is not None
        assert all(transfer.resume for transfer, _ in transfers) or not answer.incomplete_unsettled
        assert answer.incomplete_unsettled is (len(left) > len(answer.unsettled))
        for transfer, _ in transfers:
            client.send(0, Disposition(role=RECEIVER, first=transfer.delivery_id or 0, state=Accepted()))
            left.pop(transfer.delivery_tag or b"")
        client.inbox.clear()
        if not left:
            break
        client.send(0, Detach(handle=1, closed=False))
        client.inbox.clear()
    assert rounds == 6
    assert (kept(made), ready(made)) == (0, 0)


def test_a_link_with_an_incomplete_map_sends_nothing_new() -> None:
    made, client, (tag,) = delivered(b"a")
    client.post(1, b"new", settled=True, durable=True)
    made, client = interrupted(made, client, 1, "drop")
    _, transfers = resumed(client, {}, incomplete_unsettled=True)
    assert transfers == []
    assert tag
    assert kept(made) == 1


# -- the broker receives


def sending(client: Client, **fields: Any) -> Attach:
    target = Target("q", **KEPT)
    given: dict[str, Any] = {"source": Source(), "target": target, "initial_delivery_count": 0} | fields
    client.send(0, Attach("l", 0, SENDER, UNSETTLED_MODE, SECOND, **given))
    answer = client.expect(Attach)
    assert answer.target is not None, client.inbox
    client.expect(Flow)
    return answer


def posted() -> tuple[Server, Client]:
    """Return a client that has sent the message `a` with the tag `t`, and has the outcome."""
    made, client = connected()
    sending(client)
    post(client, b"a")
    client.inbox.clear()
    return made, client


def post(client: Client, content: bytes | None, *, disk: bool = True, **fields: Any) -> None:
    transfer = Transfer(0, 0, b"t", 0, **({"settled": False} | fields))
    payload = b"" if content is None else message(content, durable=True)
    client.send_bytes(frame(0, encode_performative(transfer), payload), disk=disk)


@pytest.mark.rule("SET-11", "SET-3")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("state", [None, Accepted(), Received(0, 0)])
def test_rows_1_5_and_10_nothing_has_arrived(way: str, state: DeliveryState | None) -> None:
    made, client = connected()
    sending(client)
    made, client = interrupted(made, client, 0, way)
    assert sending(client, unsettled={b"t": state}).unsettled == {}
    if state is None:
        post(client, b"a")
        assert client.outcome(0).state == Accepted()
        assert ready(made) == 1


@pytest.mark.rule("SET-11", "SET-3")
@pytest.mark.parametrize("way", ["drop", "detach", "steal"])
def test_row_3_an_outcome_that_never_left_the_broker_is_told(way: str) -> None:
    made, client = connected()
    thief = Client(made)
    sending(client)
    post(client, b"a", disk=False)
    if way == "drop":
        made.lose(client.port)
    elif way == "detach":
        client.send_bytes(frame(0, encode_performative(Detach(handle=0, closed=False))), disk=False)
    assert sending(thief, unsettled={b"t": None}).unsettled == {b"t": Accepted()}
    post(thief, None, resume=True, settled=True, state=Accepted())
    assert (kept(made), ready(made)) == (0, 1)


@pytest.mark.rule("SET-11", "SET-3", "SET-9")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("content", "count"), [(b"a", 1), (b"new", 2)])
def test_row_4_the_message_is_sent_again_and_recognised(way: str, content: bytes, count: int) -> None:
    made, client = posted()
    made, client = interrupted(made, client, 0, way)
    assert sending(client, unsettled={b"t": None}).unsettled == {b"t": None}
    post(client, content, resume=True)
    answer = client.outcome(0)
    assert (answer.state, answer.settled) == (Accepted(), False)
    assert ready(made) == count
    client.send(0, Disposition(role=SENDER, first=0, settled=True))
    assert kept(made) == 0


@pytest.mark.rule("SET-11", "SET-3")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("row", "state"), [(8, Received(0, 0)), (12, Accepted())])
def test_rows_8_and_12_the_client_adopts_the_outcome_and_settles(way: str, row: int, state: DeliveryState) -> None:
    made, client = posted()
    made, client = interrupted(made, client, 0, way)
    assert sending(client, unsettled={b"t": state}).unsettled == {b"t": Accepted()}
    post(client, None, resume=True, settled=True, state=Accepted())
    assert client.idle()
    assert (kept(made), ready(made)) == (0, 1)


@pytest.mark.rule("SET-11")
@pytest.mark.parametrize("way", WAYS)
def test_row_13_the_outcome_of_the_client_counts(way: str) -> None:
    made, client = posted()
    made, client = interrupted(made, client, 0, way)
    assert sending(client, unsettled={b"t": Rejected()}).unsettled == {b"t": Accepted()}
    post(client, None, resume=True, state=Rejected())
    answer = client.outcome(0)
    assert (answer.state, answer.settled) == (Rejected(), True)
    assert kept(made) == 0


@pytest.mark.rule("SET-11")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("known", [True, False])
def test_rows_9_and_14_an_aborted_delivery_is_forgotten(way: str, known: bool) -> None:
    made, client = posted()
    made, client = interrupted(made, client, 0, way)
    sending(client, unsettled={b"t": None} if known else {})
    post(client, None, resume=True, aborted=True)
    assert client.idle()
    assert (kept(made), ready(made)) == (0, 1)


@pytest.mark.rule("SET-11")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("complete", "left"), [(True, 0), (False, 1)])
def test_what_a_complete_map_does_not_name_is_settled(way: str, complete: bool, left: int) -> None:
    made, client = posted()
    made, client = interrupted(made, client, 0, way)
    assert sending(client, unsettled={}, incomplete_unsettled=not complete).unsettled == {}
    assert kept(made) == left


def test_a_client_that_does_not_resume_begins_anew() -> None:
    made, client = posted()
    made, client = interrupted(made, client, 0, "drop")
    assert sending(client).unsettled is None
    assert kept(made) == 0


def test_a_resumed_delivery_that_the_broker_does_not_know_is_ignored() -> None:
    made, client = connected()
    sending(client)
    post(client, b"a", resume=True)
    assert client.idle()
    assert ready(made) == 0


def test_a_resumed_delivery_without_content_or_state_is_answered() -> None:
    made, client = posted()
    made, client = interrupted(made, client, 0, "drop")
    sending(client, unsettled={b"t": None})
    post(client, None, resume=True)
    answer = client.outcome(0)
    assert (answer.state, answer.settled) == (Accepted(), False)


def test_the_map_for_a_producer_is_cut_off_at_the_frame_size() -> None:
    made, client = connected()
    sending(client)
    transfers = [Transfer(0, i, b"tag %3d" % i + b"." * 20, 0, False) for i in range(40)]
    data = b"".join(frame(0, encode_performative(each), message(b"a", durable=True)) for each in transfers)
    client.send_bytes(data)
    made.lose(client.port)
    client = Client(made, max_frame_size=512)
    remote: Unsettled = {each.delivery_tag or b"": Accepted() for each in transfers}
    some = dict(list(remote.items())[:30])
    answer = sending(client, unsettled=some, incomplete_unsettled=True)
    assert answer.incomplete_unsettled
    assert answer.unsettled is not None
    assert 0 < len(answer.unsettled) < 30
    assert len(encode_performative(answer)) <= 504


def test_a_frame_without_room_for_one_delivery_costs_the_session() -> None:
    made, client, (tag,) = delivered(b"a")
    made.lose(client.port)
    client = Client(made, max_frame_size=512)
    long = Target("t" * 400)
    attach = Attach("l", 1, RECEIVER, UNSETTLED_MODE, SECOND, Source("q", **KEPT), long, {tag: None})
    client.send(0, attach)
    client.ended(FRAME_SIZE_TOO_SMALL)


@pytest.mark.parametrize(
    ("arrival", "expected"),
    [
        (Arrival(Outcome.ACCEPTED, b"0"), Accepted()),
        (Arrival(Outcome.REJECTED, b"0"), Rejected()),
        (Arrival(Outcome.RELEASED, b"0"), Released()),
        (Arrival(Outcome.MODIFIED, b"0"), Modified(delivery_failed=True)),
        (Arrival(Outcome.MODIFIED, b"0", encode_composite(Modified())), Modified()),
    ],
)
def test_states_of_arrivals(arrival: Arrival, expected: DeliveryState) -> None:
    assert state_of(arrival) == expected


class Posting:
    """A client with an open transaction and a link on which its receiver settles second."""

    def __init__(self) -> None:
        self.made, client = connected()
        self.site = Controller(client=client)
        self.ident = self.site.declare()
        sending(client)

    @property
    def client(self) -> Client:
        return self.site.client

    def post(self, number: int, tag: bytes, content: bytes) -> None:
        state = TransactionalState(self.ident)
        self.client.send(0, Transfer(0, number, tag, 0, False, state=state), payload=message(content, durable=True))
        assert self.client.outcome(number).state == self.state

    @property
    def state(self) -> TransactionalState:
        return TransactionalState(self.ident, Accepted())

    def again(self, unsettled: Unsettled, client: Client | None = None) -> Unsettled | None:
        """Detach the link, or let `client` steal it. Attach it with this map; return that of the broker."""
        if client is None:
            self.client.send(0, Detach(handle=0, closed=False))
            self.client.expect(Detach)
        return sending(client or self.client, unsettled=unsettled).unsettled


@pytest.mark.rule("SET-7", "SET-11")
def test_a_post_of_an_open_transaction_has_its_state_in_the_map() -> None:
    posting = Posting()
    posting.post(0, b"t", b"a")
    assert posting.again({b"t": posting.state}) == {b"t": posting.state}
    posting.site.commit(posting.ident)
    assert (ready(posting.made), kept(posting.made)) == (1, 1)
    posting.client.send(0, Transfer(0, 5, b"t", 0, False), payload=message(b"b"))
    posting.client.detached(0, "amqp:illegal-state")


@pytest.mark.rule("SET-7", "SET-9")
@pytest.mark.parametrize("known", [None, "no outcome"])
def test_a_post_whose_outcome_the_client_does_not_know_is_sent_again_and_recognised(known: str | None) -> None:
    posting = Posting()
    posting.post(0, b"t", b"a")
    assert posting.again({b"t": TransactionalState(posting.ident) if known else None}) == {b"t": None}
    resend = Transfer(0, 5, b"t", 0, False, resume=True, state=TransactionalState(posting.ident))
    posting.client.send(0, resend, payload=message(b"a", durable=True))
    answer = posting.client.outcome(5)
    assert (answer.state, bool(answer.settled)) == (posting.state, False)
    posting.client.send(0, Disposition(role=SENDER, first=5, settled=True))
    posting.site.commit(posting.ident)
    assert (ready(posting.made), kept(posting.made)) == (1, 0)


@pytest.mark.rule("SET-7", "SET-9")
def test_an_aborted_post_is_not_committed() -> None:
    posting = Posting()
    posting.post(0, b"t", b"a")
    posting.again({b"t": TransactionalState(posting.ident)})
    posting.client.send(0, Transfer(0, 5, b"t", 0, False, resume=True, aborted=True))
    assert "aborted" in posting.site.refuses(posting.ident, TRANSACTION_ROLLBACK)
    assert (ready(posting.made), kept(posting.made)) == (0, 0)


@pytest.mark.rule("SET-7", "SET-12")
def test_a_link_that_resumes_on_another_connection_ends_the_transactions_of_its_posts() -> None:
    posting = Posting()
    posting.post(0, b"t", b"a")
    thief = Client(posting.made)
    assert posting.again({b"t": posting.state}, thief) == {}
    thief.send(0, Transfer(0, 0, b"t", 0, False), payload=message(b"a", durable=True))
    assert thief.outcome(0).state == Accepted()
    posting.client.collect()
    posting.client.detached(0, STOLEN)
    assert "another connection" in posting.site.refuses(posting.ident, TRANSACTION_ROLLBACK)
    assert (ready(posting.made), kept(posting.made)) == (1, 1)


@pytest.mark.rule("SET-7", "SET-9")
def test_a_tag_that_the_client_settles_within_the_transaction_is_free() -> None:
    posting = Posting()
    posting.post(0, b"t", b"a")
    posting.client.send(0, Disposition(role=SENDER, first=0, settled=True))
    posting.post(1, b"t", b"b")
    posting.site.commit(posting.ident)
    assert (ready(posting.made), kept(posting.made)) == (2, 1)
