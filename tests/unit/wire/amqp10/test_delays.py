"""Messages of AMQP 1.0 that are to be delivered later."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.core.messages.delay import LONGEST
from escrowmq.wire.amqp091 import spec
from escrowmq.wire.amqp10.codec.performatives import Disposition, Transfer
from escrowmq.wire.amqp10.codec.sections import MESSAGE_ANNOTATIONS, encode_section
from escrowmq.wire.amqp10.codec.states import Accepted, Rejected
from escrowmq.wire.amqp10.codec.termini import Source, Target
from escrowmq.wire.amqp10.codec.types import Symbol, Timestamp, UInt
from escrowmq.wire.amqp10.delays import DELAYED_DELIVERY, delayed_among
from escrowmq.wire.amqp10.errors import PRECONDITION_FAILED
from tests.harness.client import SimClient
from tests.unit.wire.amqp10.clients import Client, Server, body, connected, message

DELAY = "x-opt-delivery-delay"
TIME = "x-opt-delivery-time"


def annotated(content: bytes, **annotations: Any) -> bytes:
    names: dict[Any, Any] = {Symbol(name.replace("_", "-")): value for name, value in annotations.items()}
    return encode_section(MESSAGE_ANNOTATIONS, names) + message(content)


def send(client: Client, number: int, payload: bytes, *, settled: bool = False) -> None:
    client.send(0, Transfer(0, number, b"%d" % number, 0, settled), payload=payload)


def outcome(client: Client) -> Any:
    return client.expect(Disposition).state


def later(made: Server, client: Client, ms: int) -> list[bytes]:
    """Let time pass, and take the deliveries."""
    made.now += ms
    made.end_turn()
    made.run_disk()
    made.end_turn()
    client.collect()
    found = [item.payload for item in client.inbox if isinstance(item.performative, Transfer)]
    client.inbox.clear()
    return [body(payload) for payload in found]


@pytest.mark.rule("DLY-1")
@pytest.mark.parametrize(
    "annotation", [{DELAY: 1000}, {DELAY: UInt(1000)}, {TIME: 1_001_000}, {TIME: Timestamp(1_000_001)}]
)
def test_a_message_arrives_when_it_is_due(annotation: dict[str, Any]) -> None:
    made, client = connected()
    client.receiver("q", 1, credit=10, settled=True)
    client.sender("q")
    made.now = 1_000_000
    send(client, 0, annotated(b"late", **{name.replace("-", "_"): value for name, value in annotation.items()}))
    assert outcome(client) == Accepted()
    send(client, 1, message(b"early"))
    assert body(client.expect_message(Transfer).payload) == b"early"
    assert outcome(client) == Accepted()
    assert later(made, client, 900) == []
    assert later(made, client, 100) == [b"late"]


def test_the_content_arrives_as_it_was_sent() -> None:
    made, client = connected()
    client.receiver("q", 1, credit=10, settled=True)
    client.sender("q")
    payload = annotated(b"late", x_opt_delivery_delay=10, x_opt_other="y")
    send(client, 0, payload)
    client.inbox.clear()
    made.now += 10
    made.end_turn()
    client.collect()
    assert client.expect_message(Transfer).payload.endswith(payload)


@pytest.mark.rule("DLY-1")
@pytest.mark.parametrize("exchange", ["amq.fanout", "amq.headers"])
def test_every_address_can_be_used(exchange: str) -> None:
    made, client = connected()
    other = SimClient(made)
    other.open_channel(1)
    other.call(1, spec.QueueBind("q", exchange, ""), spec.QueueBindOk)
    client.receiver("q", 1, credit=10, settled=True)
    client.sender(f"/exchanges/{exchange}/k")
    send(client, 0, annotated(b"late", x_opt_delivery_delay=1000))
    assert outcome(client) == Accepted()
    assert later(made, client, 999) == []
    assert later(made, client, 1) == [b"late"]


def test_delayed_and_other_messages_of_one_turn() -> None:
    made, client = connected()
    client.receiver("q", 1, credit=100, settled=True)
    client.sender("q")
    for n in range(30):
        payload = annotated(b"%d" % n, x_opt_delivery_delay=10 * (n % 3)) if n % 2 else message(b"%d" % n)
        send(client, n, payload, settled=True)
    at_once = [n for n in range(30) if n % 2 == 0 or n % 3 == 0]
    assert later(made, client, 0) == [b"%d" % n for n in at_once]
    assert later(made, client, 20) == [b"%d" % n for n in (*range(1, 30, 6), *range(5, 30, 6))]


@pytest.mark.rule("DLY-3")
@pytest.mark.parametrize("value", ["soon", LONGEST + 1, True, 1.5])
def test_a_delay_that_is_not_understood_is_rejected(value: Any) -> None:
    _, client = connected()
    client.sender("q")
    send(client, 0, annotated(b"x", x_opt_delivery_delay=value))
    state = outcome(client)
    assert isinstance(state, Rejected)
    assert state.error is not None
    assert (state.error.condition, DELAY in str(state.error.description)) == (PRECONDITION_FAILED, True)
    send(client, 1, message(b"y"))
    assert outcome(client) == Accepted()


@pytest.mark.rule("DLY-3")
def test_a_settled_message_with_an_invalid_delay_costs_the_link() -> None:
    _, client = connected()
    client.sender("q")
    send(client, 0, annotated(b"x", x_opt_delivery_delay="soon"), settled=True)
    client.detached(0, PRECONDITION_FAILED)


def test_clients_learn_that_messages_can_be_delayed() -> None:
    _, client = connected()
    answer = client.sender("q", desired_capabilities=(DELAYED_DELIVERY,))
    assert answer.offered_capabilities == (DELAYED_DELIVERY,)
    assert client.sender(None, 3, target=Target("q"), source=Source()).offered_capabilities == ()


def test_only_annotated_contents_are_examined() -> None:
    contents = [message(b"x-opt-delivery-delay"), annotated(b"x", x_opt_delivery_delay=1), annotated(b"x", other=1)]
    assert delayed_among(contents) == {1}
    assert delayed_among([b"", b"\x00\x53\x72", b"\x00\x53\x72\xd1"]) == frozenset()
