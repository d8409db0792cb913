"""Links on which the client sends: outcomes, durability, credit, modes."""

from __future__ import annotations

import pytest

from escrowmq.core.topology.declaration import Declaration
from escrowmq.wire.amqp10.codec.frames import frame
from escrowmq.wire.amqp10.codec.performatives import (
    SECOND,
    SENDER,
    Attach,
    Disposition,
    Flow,
    Transfer,
    encode_performative,
)
from escrowmq.wire.amqp10.codec.sections import (
    APPLICATION_PROPERTIES,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    encode_section,
)
from escrowmq.wire.amqp10.codec.states import OUTCOME_SYMBOLS, Accepted, Rejected, Released
from escrowmq.wire.amqp10.codec.termini import Source, Target
from escrowmq.wire.amqp10.codec.types import Symbol
from escrowmq.wire.amqp10.errors import (
    ILLEGAL_STATE,
    LIMIT_EXCEEDED,
    NOT_FOUND,
    PRECONDITION_FAILED,
    TRANSFER_LIMIT_EXCEEDED,
)
from tests.unit.wire.amqp10.clients import Client, Server, connected, message

DATA = b"\x00\x53\x75\xa0\x01x"


def posts(first: int, count: int, *, durable: bool = False, settled: bool = False) -> bytes:
    """Return the frames of `count` messages."""
    return b"".join(
        frame(0, encode_performative(Transfer(0, n, b"%d" % n, 0, settled)), message(b"body %d" % n, durable=durable))
        for n in range(first, first + count)
    )


def limited(made: Server, client: Client, most: int) -> None:
    """Declare a queue that refuses messages when it has `most` of them."""
    arguments = {"x-max-length": most, "x-overflow": "reject-publish"}
    made.broker.directory.declare_queue(
        made.broker.directory.vhost("/"),
        "limited",
        Declaration(True, False, False, arguments),
        client.port.endpoint.owner,
    )


def test_messages_of_one_turn_are_answered_together() -> None:
    made, client = connected()
    client.sender("q")
    client.send_bytes(posts(0, 100))
    answer = client.outcome(0, 99)
    assert (answer.role, answer.settled, answer.state) == (True, True, Accepted())
    assert client.idle()
    assert made.broker.directory.vhost("/").queue("q").ready == 100


@pytest.mark.rule("SET-2")
def test_the_answer_waits_until_durable_messages_are_on_disk() -> None:
    made, client = connected()
    client.sender("q")
    client.send_bytes(posts(0, 3, durable=True), disk=False)
    assert client.idle()
    made.run_disk()
    client.collect()
    client.outcome(0, 2)


@pytest.mark.rule("SET-2")
def test_a_message_that_is_sent_again_on_a_new_link_is_a_new_delivery() -> None:
    made, client = connected()
    client.sender("q", name="l")
    client.send_bytes(posts(0, 2, durable=True))
    made.lose(client.port)
    made.end_turn()
    again = Client(made)
    again.sender("q", name="l")
    again.send_bytes(posts(1, 1, durable=True))
    assert again.outcome(1).state == Accepted()
    assert made.broker.directory.vhost("/").queue("q").ready == 3


@pytest.mark.rule("SET-1")
def test_settled_messages_are_not_answered() -> None:
    made, client = connected()
    client.sender("q")
    client.send_bytes(posts(0, 3, settled=True))
    assert client.idle()
    assert made.broker.directory.vhost("/").queue("q").ready == 3


def test_unroutable_messages_are_released() -> None:
    _, client = connected()
    client.sender("/exchanges/amq.direct/nowhere")
    client.send_bytes(posts(0, 3))
    assert client.outcome(0, 2).state == Released()


@pytest.mark.parametrize("second", [False, True])
def test_a_topic_without_subscribers_takes_messages(second: bool) -> None:
    _, client = connected()
    target = Target("lonely", capabilities=(Symbol("topic"),))
    client.sender(None, target=target, rcv_settle_mode=int(second))
    client.send_bytes(posts(0, 3))
    assert client.outcome(0, 2).state == Accepted()


def test_a_full_queue_rejects() -> None:
    made, client = connected()
    limited(made, client, 2)
    client.sender("/queues/limited")
    client.send_bytes(posts(0, 4))
    assert client.outcome(0, 1).state == Accepted()
    state = client.outcome(2, 3).state
    assert isinstance(state, Rejected)
    assert state.error is not None
    assert state.error.condition == LIMIT_EXCEEDED


def test_an_outcome_that_the_source_does_not_list_costs_the_link() -> None:
    _, client = connected()
    client.sender("/exchanges/amq.direct/nowhere", source=Source(outcomes=(OUTCOME_SYMBOLS[0],)))
    client.post(0)
    client.detached(0, PRECONDITION_FAILED)


def test_a_deleted_exchange_costs_the_link() -> None:
    made, client = connected()
    directory, vhost = made.broker.directory, made.broker.directory.vhost("/")
    directory.declare_exchange(vhost, "x", "fanout")
    client.sender("/exchanges/x")
    directory.delete_exchange(vhost, "x")
    client.post(0)
    client.detached(0, NOT_FOUND)


def test_a_deleted_queue_releases_its_messages() -> None:
    made, client = connected()
    client.sender("q")
    client.post(0)
    client.outcome(0)
    made.broker.directory.delete_queue(made.broker.directory.vhost("/").queue("q"))
    client.post(1)
    assert client.outcome(1).state == Released()


def addressed(number: int, to: str) -> tuple[Transfer, bytes]:
    properties = b"\x00\x53\x73\xc0" + bytes((len(to) + 5, 3)) + b"\x40\x40\xa1" + bytes((len(to),)) + to.encode()
    return Transfer(0, number, b"%d" % number, 0, False), properties + message(b"x")


def test_each_message_of_an_anonymous_link_has_an_address() -> None:
    made, client = connected()
    client.sender(None, target=Target())
    for number, (to, expected) in enumerate(
        [("q", Accepted), ("/queues/q", Accepted), ("/queues/nope", Rejected), ("/exchanges/amq.direct/k", Released)]
    ):
        transfer, payload = addressed(number, to)
        client.send(0, transfer, payload=payload)
        assert isinstance(client.outcome(number).state, expected)
    client.post(9)
    state = client.outcome(9).state
    assert isinstance(state, Rejected)
    assert state.error is not None
    assert state.error.condition == PRECONDITION_FAILED
    assert made.broker.directory.vhost("/").queue("q").ready == 2


def test_a_plain_exchange_routes_by_subject() -> None:
    made, client = connected()
    made.broker.directory.bind_queue(made.broker.directory.vhost("/"), "amq.direct", "q", "k")
    client.sender("amq.direct")
    for number, key in enumerate([b"k", b"l"]):
        properties = b"\x00\x53\x73\xc0\x07\x04\x40\x40\x40\xa1\x01" + key
        client.send(0, Transfer(0, number, b"%d" % number, 0, False), payload=properties + message(b"x"))
    assert client.outcome(0).state == Accepted()
    assert client.outcome(1).state == Released()


def test_messages_are_routed_by_their_headers() -> None:
    made, client = connected()
    directory, vhost = made.broker.directory, made.broker.directory.vhost("/")
    directory.bind_queue(vhost, "amq.headers", "q", "", {"x-match": "all", "a": "b"})
    client.sender("/exchanges/amq.headers")
    for number, value in enumerate([b"b", b"c", b"b"]):
        properties = b"\x00\x53\x74\xc1\x07\x02\xa1\x01a\xa1\x01" + value
        client.send(0, Transfer(0, number, b"%d" % number, 0, False), payload=properties + message(b"x"))
    states = [type(client.outcome(number).state) for number in range(3)]
    assert states == [Accepted, Released, Accepted]


def test_credit_is_granted_again_when_half_of_it_is_used() -> None:
    _, client = connected(link_credit=10)
    client.sender("q")
    client.send_bytes(posts(0, 5, settled=True))
    assert client.idle()
    client.send_bytes(posts(5, 1, settled=True))
    flow = client.expect(Flow)
    assert (flow.handle, flow.delivery_count, flow.link_credit) == (0, 6, 10)


def test_more_messages_than_the_credit_cost_the_link() -> None:
    made, client = connected(link_credit=10)
    client.sender("q")
    client.send_bytes(posts(0, 11))
    client.detached(0, TRANSFER_LIMIT_EXCEEDED)
    assert made.broker.directory.vhost("/").queue("q").ready == 0


def test_the_delivery_count_begins_where_the_client_says() -> None:
    _, client = connected(link_credit=10)
    client.send(0, Attach("s", 0, SENDER, source=Source(), target=Target("q"), initial_delivery_count=2**32 - 3))
    client.expect(Attach)
    assert client.expect(Flow).delivery_count == 2**32 - 3
    client.send_bytes(posts(0, 6, settled=True))
    assert client.expect(Flow).delivery_count == 3


def test_a_client_may_ask_for_the_state_of_the_link() -> None:
    _, client = connected(link_credit=10)
    client.sender("q")
    client.flow(0, echo=True, delivery_count=0)
    assert client.expect(Flow).link_credit == 10


def test_a_tag_is_used_once_among_unsettled_messages() -> None:
    _, client = connected()
    client.sender("q", rcv_settle_mode=SECOND)
    client.send(0, Transfer(0, 0, b"t", 0, False), payload=message(b"a"))
    client.outcome(0)
    client.send(0, Disposition(role=SENDER, first=0, settled=True))
    client.send(0, Transfer(0, 1, b"t", 0, False), payload=message(b"b"))
    client.outcome(1)
    client.send(0, Transfer(0, 2, b"t", 0, False), payload=message(b"c"))
    client.detached(0, ILLEGAL_STATE)


def test_a_tag_is_used_once_within_a_turn() -> None:
    _, client = connected()
    client.sender("q")
    client.send_bytes(frame(0, encode_performative(Transfer(0, 0, b"t", 0, False)), message(b"a" * 9)) * 2)
    client.outcome(0)
    client.detached(0, ILLEGAL_STATE)


@pytest.mark.rule("FAIR-3")
def test_unsettled_posts_are_bounded_by_credit() -> None:
    _, client = connected(link_credit=10, unsettled=12)
    client.sender("q", rcv_settle_mode=SECOND)
    client.send_bytes(posts(0, 6))
    client.outcome(0, 5)
    client.send_bytes(posts(6, 3))
    client.outcome(6, 8)
    assert client.expect(Flow).link_credit == 3
    client.send_bytes(posts(9, 3))
    client.outcome(9, 11)
    assert client.idle()
    client.send(0, Disposition(role=SENDER, first=0, last=11, settled=True))
    assert client.expect(Flow).link_credit == 10


@pytest.mark.rule("FAIR-1")
@pytest.mark.parametrize(
    "head",
    [
        encode_section(MESSAGE_ANNOTATIONS, {Symbol("x-opt-delivery-delay"): "1" * 2000}),
        encode_section(APPLICATION_PROPERTIES, {"a": "b" * 2000}),
        DATA * 5001,
    ],
    ids=["annotations", "properties", "sections"],
)
@pytest.mark.parametrize("address", ["q", None])
def test_a_message_of_which_too_much_would_be_decoded_is_refused(head: bytes, address: str | None) -> None:
    made, client = connected(header_size=1024)
    client.sender(address)
    to = encode_section(PROPERTIES, [None, None, "/queues/q"])
    data = head + to if head.startswith(b"\x00\x53\x72") else to + head
    client.send(0, Transfer(0, 0, b"t", 0, True), payload=data + DATA)
    client.detached(0, "amqp:decode-error")
    assert made.broker.directory.vhost("/").queue("q").ready == 0


def test_a_large_body_is_no_large_head() -> None:
    made, client = connected(header_size=1024)
    client.sender("q")
    for number in range(2):
        client.send(0, Transfer(0, number, b"t", 0, True), payload=encode_section(0x75, b"x" * 5000))
    assert made.broker.directory.vhost("/").queue("q").ready == 2
