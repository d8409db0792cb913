"""Outcomes of deliveries, and settlements of posts."""

from __future__ import annotations

import pytest

from escrowmq.core.messages.marks import Marks, Modification
from escrowmq.core.queues import portions
from escrowmq.core.queues.dead_letters import DeadLetters
from escrowmq.core.queues.outcome import Disposition as Settlement
from escrowmq.core.topology.declaration import Declaration
from escrowmq.wire.amqp10.codec import sections
from escrowmq.wire.amqp10.codec.encoding import encode
from escrowmq.wire.amqp10.codec.performatives import RECEIVER, SECOND, SENDER, Disposition
from escrowmq.wire.amqp10.codec.states import (
    Accepted,
    DeliveryState,
    Modified,
    Received,
    Rejected,
    Released,
)
from escrowmq.wire.amqp10.codec.termini import Source
from escrowmq.wire.amqp10.codec.types import Symbol
from escrowmq.wire.amqp10.dispositions import modification
from tests.unit.wire.amqp10.clients import Client, Server, connected, message, server
from tests.unit.wire.amqp10.controller import Controller, consuming

Q = "q"


def delivered(count: int, version: str = "", **source: object) -> tuple[Server, Client]:
    """Return a client with the deliveries from 0 to `count` - 1. `version` is that of RabbitMQ which it is told."""
    made, client = connected(rabbitmq_version=version)
    client.sender(Q)
    for number in range(count):
        client.post(number, b"%d" % number, settled=True)
    client.receiver(Q, credit=count, source=Source(Q, **source))  # type: ignore[arg-type]
    assert [number for number, _ in client.deliveries()] == list(range(count))
    return made, client


def ready(made: Server) -> list[tuple[int, int]]:
    """Return position and failures of the ready messages."""
    queue = made.broker.directory.vhost("/").queue(Q)
    entries = queue.order.take(1000)
    queue.order.put_back(entries)
    return [(entry.position, queue.failures(entry)) for entry in entries]


@pytest.mark.rule("SET-13")
@pytest.mark.parametrize(
    ("state", "left"),
    [
        (Accepted(), []),
        (Rejected(), []),
        (Released(), [(2, 0), (3, 0)]),
        (Modified(delivery_failed=True), [(2, 1), (3, 1)]),
        (Modified(), [(2, 0), (3, 0)]),
        (None, [(2, 1), (3, 1)]),
    ],
)
def test_a_range_gets_an_outcome(state: DeliveryState | None, left: list[tuple[int, int]]) -> None:
    made, client = delivered(4)
    client.send(0, Disposition(role=RECEIVER, first=1, last=2, settled=True, state=state))
    assert client.idle()
    assert ready(made) == left
    client.send(0, Disposition(role=RECEIVER, first=0, last=9, settled=True, state=Accepted()))
    assert ready(made) == left
    assert made.broker.directory.vhost("/").queue(Q).unsettled == 0


@pytest.mark.rule("SET-13")
def test_rejected_deliveries_are_dead_lettered() -> None:
    made, client = connected()
    directory, vhost = made.broker.directory, made.broker.directory.vhost("/")
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    for name, some in (("dying", arguments), ("dead", {})):
        directory.declare_queue(vhost, name, Declaration(True, False, False, some), client.port.endpoint.owner)
    client.sender("/queues/dying")
    client.post(0, b"bad", settled=True)
    client.receiver("/queues/dying", credit=1)
    assert [number for number, _ in client.deliveries()] == [0]
    client.send(0, Disposition(role=RECEIVER, first=0, settled=True, state=Rejected()))
    assert (vhost.queue("dying").ready, vhost.queue("dying").unsettled, vhost.queue("dead").ready) == (0, 0, 1)


@pytest.mark.parametrize("state", [Accepted(), Rejected(), Released(), Modified(delivery_failed=True)])
def test_an_unsettled_outcome_is_answered_with_a_settled_one(state: DeliveryState) -> None:
    _, client = delivered(3)
    client.send(0, Disposition(role=RECEIVER, first=0, last=1, settled=False, state=state))
    answer = client.outcome(0, 1)
    assert (answer.role, answer.settled, answer.state) == (SENDER, True, state)


def test_an_answer_waits_until_the_outcome_is_on_disk() -> None:
    made, client = connected()
    client.sender(Q)
    client.post(0, durable=True)
    client.inbox.clear()
    client.receiver(Q, credit=1)
    assert len(client.deliveries()) == 1
    client.server.receive(client.port, _frame(Disposition(role=RECEIVER, first=0, settled=False, state=Accepted())))
    made.end_turn()
    client.collect()
    assert client.idle()
    made.run_disk()
    client.collect()
    assert client.outcome(0).settled


def _frame(disposition: Disposition) -> bytes:
    from escrowmq.wire.amqp10.codec.frames import frame
    from escrowmq.wire.amqp10.codec.performatives import encode_performative

    return frame(0, encode_performative(disposition))


@pytest.mark.parametrize("default", [Accepted(), Released(), Rejected(), Modified(delivery_failed=True)])
def test_the_default_outcome_is_that_of_the_source(default: DeliveryState) -> None:
    made, client = delivered(1, default_outcome=default)
    client.send(0, Disposition(role=RECEIVER, first=0, settled=True))
    expected = {Accepted: [], Rejected: [], Released: [(1, 0)], Modified: [(1, 1)]}
    assert ready(made) == expected[type(default)]


@pytest.mark.rule("SET-4")
def test_progress_settles_nothing() -> None:
    made, client = delivered(1)
    client.send(0, Disposition(role=RECEIVER, first=0, settled=False, state=Received(0, 10)))
    client.send(0, Disposition(role=RECEIVER, first=0, settled=False))
    assert client.idle()
    assert made.broker.directory.vhost("/").queue(Q).unsettled == 1
    client.send(0, Disposition(role=RECEIVER, first=0, settled=True, state=Accepted()))
    assert made.broker.directory.vhost("/").queue(Q).unsettled == 0


def test_unknown_deliveries_are_ignored() -> None:
    made, client = delivered(1)
    client.send(0, Disposition(role=RECEIVER, first=1, last=2000, settled=True, state=Accepted()))
    client.send(0, Disposition(role=SENDER, first=0, last=2**31 - 2, settled=True, state=Accepted()))
    assert client.idle()
    assert made.broker.directory.vhost("/").queue(Q).unsettled == 1


@pytest.mark.rule("FAIR-1")
def test_many_rejections_take_several_turns() -> None:
    made, client = delivered(500)
    made.receive(client.port, _frame(Disposition(role=RECEIVER, first=0, last=499, settled=True, state=Rejected())))
    assert made.broker.engine.requests.left < 0
    made.end_turn()
    assert made.broker.directory.vhost("/").queue(Q).unsettled == 0


def test_a_producer_settles_second() -> None:
    _, client = connected()
    assert client.sender(Q, rcv_settle_mode=SECOND).rcv_settle_mode == SECOND
    client.post(0)
    client.post(1)
    assert not client.outcome(0).settled
    assert not client.outcome(1).settled
    link = client.port.endpoint.sessions[0].links[0]
    assert link.describe()["unsettled"] == 2
    client.send(0, Disposition(role=SENDER, first=0, last=1, settled=True))
    assert link.describe()["unsettled"] == 0


@pytest.mark.rule("SET-13")
def test_modified_keeps_annotations_and_excludes_the_link() -> None:
    made, client = delivered(1)
    state = Modified(delivery_failed=True, undeliverable_here=True, message_annotations={Symbol("x-a"): "b"})
    client.send(0, Disposition(role=RECEIVER, first=0, settled=True, state=state))
    marks = made.broker.directory.vhost("/").queue(Q).marks[1]
    assert marks == Marks(1, {"x-a": encode("b")}, frozenset({"c/r1"}))


def test_undeliverable_here_discards_the_message_of_a_client_of_rabbitmq() -> None:
    made, client = delivered(1, version="4.2.0")
    client.send(0, Disposition(role=RECEIVER, first=0, settled=True, state=Modified(undeliverable_here=True)))
    assert ready(made) == []


def lettering(arguments: dict[str, object] | None = None, version: str = "") -> tuple[Server, Client]:
    """Return a client that has received a message from a queue with dead letters."""
    made, client = connected(rabbitmq_version=version)
    directory, vhost = made.broker.directory, made.broker.directory.vhost("/")
    given = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead", "x-queue-type": "quorum"}
    for name, some in (("dead", {}), ("live", given | (arguments or {}))):
        directory.declare_queue(vhost, name, Declaration(True, False, False, some), client.port.endpoint.owner)
    client.sender("live")
    client.post(0, b"a", durable=True, settled=True)
    client.receiver("live", credit=10)
    assert client.deliveries() == [(0, b"a")]
    return made, client


def letter(made: Server, *, restart: bool = False) -> tuple[dict[str, object], bytes]:
    """Return the annotations of consumers on the dead letter, and the bare message."""
    if restart:
        made.run_disk()
        made.storage.crash()
        made = server(storage=made.storage)
    queue = made.broker.directory.vhost("/").queue("dead")
    queue.refresh()
    (entry,) = queue.order.take(10)
    at = sections.annotations_at(entry.content)[1]
    return {str(key): value for key, value in sections.message_annotations(entry.content).items()}, entry.content[at:]


NOTED = {Symbol("x-a"): "b"}


@pytest.mark.rule("SET-13", "MSG-2")
@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("settled", [False, True])
def test_the_annotations_of_a_discarded_message_are_in_its_dead_letter(settled: bool, restart: bool) -> None:
    made, client = lettering(version="4.2.0")
    state = Modified(undeliverable_here=True, message_annotations=NOTED)
    client.send(0, Disposition(role=RECEIVER, first=0, settled=settled, state=state))
    assert letter(made, restart=restart) == ({"x-a": "b"}, message(b"a"))


@pytest.mark.rule("SET-13", "MSG-2")
def test_a_dead_letter_has_the_annotations_of_earlier_deliveries() -> None:
    made, client = lettering()
    client.send(0, Disposition(role=RECEIVER, first=0, settled=True, state=Modified(message_annotations=NOTED)))
    assert [number for number, _ in client.deliveries()] == [1]
    client.send(0, Disposition(role=RECEIVER, first=1, settled=True, state=Rejected()))
    assert letter(made) == ({"x-a": "b"}, message(b"a"))


@pytest.mark.rule("SET-13", "MSG-2")
def test_a_message_beyond_the_delivery_limit_has_the_annotations_of_its_last_delivery() -> None:
    made, client = lettering({"x-delivery-limit": 0})
    state = Modified(delivery_failed=True, message_annotations=NOTED)
    client.send(0, Disposition(role=RECEIVER, first=0, settled=True, state=state))
    assert letter(made) == ({"x-a": "b"}, message(b"a"))


@pytest.mark.rule("SET-7", "SET-13")
@pytest.mark.parametrize("limit", [False, True])
def test_annotations_within_a_transaction_are_in_the_dead_letter_after_the_commit(limit: bool) -> None:
    made, client = lettering({"x-delivery-limit": 0}) if limit else lettering(version="4.2.0")
    controller = Controller(client=client)
    for commit in (False, True):
        ident = controller.declare()
        outcome = Modified(limit, not limit, NOTED)
        controller.retire(ident, 0, 0, outcome, settled=commit)
        if not commit:
            controller.rollback(ident)
        else:
            controller.commit(ident)
    assert letter(made) == ({"x-a": "b"}, message(b"a"))


def test_plain_modifications_need_no_marks() -> None:
    assert modification("l", Modified(delivery_failed=True)) is Settlement.MODIFIED
    assert modification("l", Modified()) is Settlement.RELEASED
    assert modification("l", Modified(undeliverable_here=True)) == Modification(excluded="l")


def test_an_annotation_may_be_any_described_value() -> None:
    made, client = delivered(1)
    state = Modified(message_annotations={Symbol("x-a"): Accepted()})
    client.send(0, Disposition(role=RECEIVER, first=0, settled=True, state=state))
    marks = made.broker.directory.vhost("/").queue(Q).marks[1]
    assert marks.annotations == {"x-a": b"\x00\x53\x24\x45"}


@pytest.mark.rule("FAIR-1")
def test_few_deliveries_are_rejected_together_while_dead_letters_go_to_many_queues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = Controller()
    consuming(site, 23)
    monkeypatch.setattr(portions, "TOGETHER", 80)
    monkeypatch.setattr(DeadLetters, "width", lambda *_: (16, True))
    rejected: list[int] = []
    monkeypatch.setattr(DeadLetters, "send", lambda *call: rejected.append(len(call[2])))
    site.client.send(0, Disposition(role=RECEIVER, first=0, last=22, settled=True, state=Rejected()))
    assert sum(rejected) == 23
    assert max(rejected) == 5
